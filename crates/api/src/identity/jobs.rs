//! Jobs as identities: the managed identity that `DefaultAzureCredential()` finds inside a job.
//!
//! N1 a secret names one job and is made from the server's key: nothing is stored, and no event or document has it (I9);
//! N2 a job may do in its own workspace what who submitted it may: submitting needs the right on the whole workspace;
//! N3 its tokens are worth nothing once it has ended.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use control::Control;
use hmac::{Hmac, KeyInit, Mac};
use model::JobId;
use sha2::Sha256;

/// Bytes of the key that makes secrets of jobs.
pub const JOB_KEY_BYTES: usize = 32;
/// What the secret is for: a key that should ever sign something else cannot be made to sign this.
const PURPOSE: &[u8] = b"zaffre-job-identity\n";
/// How tokens of jobs say what they are.
pub(super) const KIND: &str = "job";
/// A longer secret is none of ours.
const MAX_BYTES: usize = 4 * 1024;

/// The key that makes secrets of jobs, and nothing else.
#[derive(Clone)]
pub struct JobKey([u8; JOB_KEY_BYTES]);

impl JobKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; JOB_KEY_BYTES]) -> Self {
        JobKey(bytes)
    }

    fn mac(&self, job: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(PURPOSE);
        mac.update(job);
        mac
    }

    /// The secret of a job: `IDENTITY_HEADER` in its environment.
    pub fn secret(&self, job: &JobId) -> String {
        let job = serde_json::to_vec(job).expect("ids can be written");
        let signature = self.mac(&job).finalize().into_bytes();
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&job),
            URL_SAFE_NO_PAD.encode(signature)
        )
    }

    /// The job whose secret this is.
    pub(super) fn job(&self, secret: &str) -> Option<JobId> {
        if secret.len() > MAX_BYTES {
            return None;
        }
        let (job, signature) = secret.split_once('.')?;
        let job = URL_SAFE_NO_PAD.decode(job).ok()?;
        self.mac(&job)
            .verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?)
            .ok()?;
        serde_json::from_slice(&job).ok()
    }
}

/// Whether a job has not ended (N3).
pub(super) fn runs(control: &Control, job: &JobId) -> bool {
    let view = control.view();
    view.runs.get(job).is_some_and(|run| !run.state.is_done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Workspace;

    #[test]
    fn n1_a_secret_is_one_jobs() {
        let job = |name: &str| JobId::new(&Workspace::new("s", "g", "w"), name);
        let key = JobKey::new([7; JOB_KEY_BYTES]);
        let (one, two) = (key.secret(&job("one")), key.secret(&job("two")));
        assert_eq!(key.job(&one), Some(job("one")));
        let mixed = format!(
            "{}.{}",
            one.split_once('.').unwrap().0,
            two.split_once('.').unwrap().1
        );
        for wrong in [mixed.as_str(), &one[..one.len() - 2], "", "x.y", "."] {
            assert_eq!(key.job(wrong), None, "{wrong}");
        }
        assert_eq!(JobKey::new([8; JOB_KEY_BYTES]).job(&one), None);
        for (at, bit) in (0..one.len()).flat_map(|at| (0..7).map(move |bit| (at, bit))) {
            let mut changed = one.clone().into_bytes();
            changed[at] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(key.job(&changed), None, "bit {bit} of byte {at} (F9)");
        }
    }
}
