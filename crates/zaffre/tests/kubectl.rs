//! Stock `kubectl` against the server: `tests/kubectl/NAME.txt` holds commands and what every version must answer. See
//! `support/transcript.rs` and `support/kubectl.rs`.

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};
use support::{
    Server,
    kubectl::{self, Kubectl},
    plain::WS,
    repository, shared, signal,
    transcript::{self, copy},
};

/// The server of a script, with the files that the seeds name and those of the script.
fn prepared(name: &str) -> Server {
    // A node that holds whatever is written: warnings about one that does not would differ from machine to machine.
    let server = Server::start_with(&[
        "--node-label",
        "mylabel=mylabelvalue",
        "--node-device",
        "nvidia.com/gpu=8",
    ]);
    for file in ["my_instance_type.yaml", "my_instance_type_list.yaml"] {
        let from = shared("fixtures/seed").join(file);
        fs::copy(from, server.folder.join(file)).unwrap();
    }
    copy(&shared("kube/manifests"), &server.folder.join("manifests"));
    let files = repository().join("tests/kubectl").join(name);
    if files.exists() {
        copy(&files, &server.folder.join(name));
    }
    server
}

fn play(name: &str) {
    let path = transcript::path("kubectl", name);
    let script = fs::read_to_string(&path).unwrap();
    let all = kubectl::all(&format!("the transcript {name}"));
    for (n, kubectl) in all.iter().enumerate() {
        let server = prepared(name);
        let played = transcript::played(&script, &server, |asked| match asked.program.as_str() {
            "kubectl" => asked.finish(kubectl.command(&server)),
            "zaffre" => asked.finish(server.command(&[])),
            other => panic!("{name}: {other} is no program of a transcript"),
        });
        server.stop();
        let played = masked(&played);
        if n == 0 {
            transcript::bless(&path, &played); // every other version is compared with it
        }
        transcript::compare(&path, &played, &format!("kubectl {}", kubectl.name));
    }
}

/// Ages and the files of `diff` differ from run to run, what a warning says of this machine from one to another.
fn masked(played: &str) -> String {
    let mut out = String::new();
    let mut aged = false;
    for line in played.lines() {
        if line.starts_with("> NAME ") {
            aged = line.contains(" AGE");
        } else if !line.starts_with('>') {
            aged = false;
        }
        if line.contains("LIVE-") || line.contains("MERGED-") {
            out.push_str(&format!("{} FILES", line.get(..5).unwrap_or_default()));
        } else if let Some((says, _)) = line.split_once(" (")
            && line.starts_with("! Warning: ")
        {
            out.push_str(&format!("{says} (NODES)"));
        } else if aged {
            out.push_str(&without_age(line));
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

/// A row with the word of its age replaced; up to three letters wide, so that the columns stay.
fn without_age(row: &str) -> String {
    let age = |word: &str| {
        let digits = word.strip_suffix('s').unwrap_or_default();
        (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let Some(word) = row.split(' ').find(|word| age(word)) else {
        return row.to_owned();
    };
    let masked = row.replacen(&format!(" {word:<3}"), " AGE", 1);
    if masked == row {
        row.replacen(&format!(" {word}"), " AGE", 1)
    } else {
        masked
    }
}

#[test]
fn the_commands_of_the_seeds() {
    play("seeds");
}

#[test]
fn reading() {
    play("reading");
}

#[test]
fn writing() {
    play("writing");
}

#[test]
fn server_side() {
    play("server_side");
}

#[test]
fn good_and_bad_manifests() {
    play("manifests");
}

#[test]
fn both_doors() {
    play("both_doors");
}

/// The resourceVersion and the uid of a type.
fn identity(kubectl: &Kubectl, server: &Server, name: &str) -> (u64, String) {
    let form = "jsonpath={.metadata.resourceVersion} {.metadata.uid}";
    let text = kubectl.ok(server, &["get", "instancetype", name, "-o", form]);
    let (revision, uid) = text.split_once(' ').unwrap();
    (revision.parse().unwrap(), uid.to_owned())
}

#[test]
fn a_restart_keeps_the_types_and_never_goes_back() {
    let Some(kubectl) = kubectl::all("the restart").pop() else {
        return;
    };
    let mut server = prepared("restart");
    kubectl.ok(&server, &["apply", "-f", "my_instance_type_list.yaml"]);
    kubectl.ok(&server, &["delete", "instancetype", "defaultinstancetype"]);
    let before = identity(&kubectl, &server, "cpusmall");
    server.kill();
    server.restart();
    assert_eq!(identity(&kubectl, &server, "cpusmall"), before);
    let list = "jsonpath={.items[*].metadata.name}";
    let names = kubectl.ok(&server, &["get", "instancetype", "-o", list]);
    assert_eq!(names, "cpusmall", "what was deleted stays so");
    let again = kubectl.ok(&server, &["apply", "-f", "my_instance_type_list.yaml"]);
    assert!(again.contains("cpusmall unchanged"), "{again}");
    let made = identity(&kubectl, &server, "defaultinstancetype");
    // the two that were made and the one that was deleted
    assert!(made.0 > 3, "{made:?}");
    server.stop();
}

#[test]
fn a_watch_prints_what_happens() {
    for kubectl in kubectl::all("the watch") {
        let server = prepared("watch");
        kubectl.ok(&server, &["apply", "-f", "my_instance_type.yaml"]);
        let args = [
            "get",
            "instancetype",
            "-w",
            "--output-watch-events",
            "--no-headers",
        ];
        let mut child = kubectl
            .command(&server)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || {
            let line = lines.next().unwrap().unwrap();
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        };
        let event = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(next(), event("ADDED", "myinstancetypename"));
        kubectl.ok(&server, &["apply", "-f", "my_instance_type_list.yaml"]);
        assert_eq!(next(), event("ADDED", "cpusmall"));
        assert_eq!(next(), event("ADDED", "defaultinstancetype"));
        kubectl.ok(&server, &["label", "instancetype", "cpusmall", "a=b"]);
        assert_eq!(next(), event("MODIFIED", "cpusmall"));
        kubectl.ok(&server, &["delete", "instancetype", "cpusmall"]);
        assert_eq!(next(), event("DELETED", "cpusmall"));
        signal("KILL", child.id());
        child.wait().unwrap();
        server.stop();
    }
}

#[test]
fn a_wait_ends_when_what_it_waits_for_is_there() {
    for kubectl in kubectl::all("the wait") {
        let server = prepared("wait");
        kubectl.ok(&server, &["apply", "-f", "my_instance_type.yaml"]);
        let condition = "--for=jsonpath={.spec.resources.limits.cpu}=7";
        let mut waiting = kubectl
            .command(&server)
            .args(["wait", condition, "instancetype/myinstancetypename"])
            .arg("--timeout=60s")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let patch = r#"{"spec":{"resources":{"limits":{"cpu":"7"}}}}"#;
        let name = "myinstancetypename";
        kubectl.ok(
            &server,
            &["patch", "instancetype", name, "--type=merge", "-p", patch],
        );
        assert!(waiting.wait().unwrap().success());
        server.stop();
    }
}

#[test]
fn without_the_token_nothing_is_said() {
    let Some(kubectl) = kubectl::all("the wrong token").pop() else {
        return;
    };
    let server = prepared("token");
    let output = kubectl.run(&server, &["get", "instancetype", "--token", "wrong"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        text.contains("You must be logged in to the server") || text.contains("Unauthorized"),
        "{text}"
    );
    server.stop();
}

/// kubectl asks for a token with the account that its configuration was written for, and the roles of that account decide.
#[test]
fn a_signed_in_account_uses_kubectl_as_its_roles_allow() {
    for kubectl in kubectl::all("kubectl with an account") {
        let server = prepared("none");
        let secret = server.value(&["identity", "create", "-n", "ann"], "secret");
        fs::write(server.folder.join("secret"), secret).unwrap();
        let role = |role: &str, scope: &str| {
            let args = [
                "role",
                "assignment",
                "create",
                "--assignee",
                "ann",
                "--role",
                role,
                "--scope",
                scope,
                "-o",
                "none",
            ];
            server.ok(&args);
        };
        let as_ann = |args: &[&str]| {
            let mut command = server.command(args);
            command
                .env("ZAFFRE_HOME", server.folder.join("ann"))
                .env_remove("ZAFFRE_TOKEN")
                .env_remove("ZAFFRE_SERVER");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{args:?}: {output:?}");
        };
        role("Contributor", WS);
        as_ann(&[
            "login",
            "--server",
            &server.url,
            "-u",
            "ann",
            "--secret-file",
            "secret",
        ]);
        as_ann(&["kubeconfig", "-f", "ann.config"]);
        let config = fs::read_to_string(server.folder.join("ann.config")).unwrap();
        assert!(!config.contains("token:"), "{config}");
        let run = |args: &[&str]| {
            let mut command = kubectl.command(&server);
            // What was written is enough: kubectl gives its own environment to the program that it asks.
            command
                .args(args)
                .env("KUBECONFIG", server.folder.join("ann.config"))
                .env_remove("ZAFFRE_HOME");
            let output = command.output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (
                output.status.success(),
                text(&output.stdout) + &text(&output.stderr),
            )
        };
        let forbidden = |args: &[&str]| {
            let (good, said) = run(args);
            assert!(!good && said.contains("Forbidden"), "{args:?}: {said}");
        };
        let good = |args: &[&str]| {
            let (good, said) = run(args);
            assert!(good, "{args:?}: {said}");
            said
        };
        let may_not = |verb: &str| {
            let said = run(&["auth", "can-i", verb, "instancetypes"]).1;
            said.lines()
                .any(|line| line == "no" || line.starts_with("no - "))
        };
        let apply = ["apply", "-f", "my_instance_type.yaml"];
        // Types are the server's, and no role of a workspace reaches them; what is served may be asked.
        good(&["version"]);
        good(&["api-resources"]);
        forbidden(&["get", "instancetypes"]);
        assert!(may_not("get"));
        role("Reader", "/");
        good(&["get", "instancetypes"]);
        forbidden(&apply);
        assert!(may_not("create"));
        role("Contributor", "/");
        good(&apply);
        assert!(good(&["auth", "can-i", "create", "instancetypes"]).contains("yes"));
        good(&["delete", "instancetype", "myinstancetypename"]);
        // A secret that was replaced gets no token, and the reason reaches the person.
        server.ok(&["identity", "rotate", "-n", "ann", "-o", "none"]);
        let (good, said) = run(&["get", "instancetypes"]);
        assert!(
            !good && said.contains("must be logged in")
                || said.contains("there is no identity with"),
            "{said}"
        );
        server.stop();
    }
}
