"""Parallel steps as programs of azure-ai-ml make them: `parallel_run_function`, a component from a file, one that is registered."""
import pathlib

from client import UNIQUE, done, ended, refused, same, signed_in

from azure.ai.ml import Input, Output, command, dsl, load_component, load_job
from azure.ai.ml.entities import AmlCompute, Environment
from azure.ai.ml.parallel import RunFunction, parallel_run_function
from azure.core.exceptions import HttpResponseError

FILES = 20
SCRIPT = """
import argparse, os

def init():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--factor", type=int)
    parser.add_argument("--beside")
    options, unknown = parser.parse_known_args()
    assert "--logging_level" in unknown, unknown

def run(mini_batch):
    rows = []
    for path in mini_batch:
        number = int(open(path).read())
        if options.beside:
            with open(os.path.join(options.beside, os.path.basename(path)), "w") as file:
                file.write(os.environ["SUFFIX"])
        rows.append(f"{os.path.basename(path)} {number * options.factor}")
    return rows

def shutdown():
    if options.beside:
        open(os.path.join(options.beside, f"end-{os.getpid()}"), "w").close()
"""
COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/parallelComponent.schema.json
name: scale_%s
version: 1
type: parallel
inputs:
  numbers: {type: uri_file}
  factor: {type: integer, default: 1}
outputs:
  rows: {type: uri_folder}
input_data: ${{inputs.numbers}}
mini_batch_size: "1"
max_concurrency_per_instance: 1
task:
  type: run_function
  code: ./src
  entry_script: scale.py
  environment: azureml:plain_%s:1
  program_arguments: --factor ${{inputs.factor}}
  append_row_to: ${{outputs.rows}}
"""

ml = signed_in()
here = pathlib.Path.cwd()
(here / "src").mkdir()
(here / "numbers").mkdir()
(here / "src/scale.py").write_text(SCRIPT)
(here / "src/add.py").write_text("import sys\nrows = [line.split() for line in open(sys.argv[1])]\n"
                                 "open(sys.argv[2] + '/sum', 'w').write(str(sum(int(n) for _, n in rows)))\n")
(here / "scale.yml").write_text(COMPONENT % (UNIQUE, UNIQUE))
for n in range(FILES):
    (here / f"numbers/n{n:02}").write_text(str(n))
done(ml.compute.begin_create_or_update(AmlCompute(name="pool", size="Standard_D1_v2", max_instances=2)))
ml.environments.create_or_update(Environment(name=f"plain_{UNIQUE}", version="1", image="library/python:latest"))
environment = f"azureml:plain_{UNIQUE}:1"

scale = parallel_run_function(
    name="scale",
    inputs={"numbers": Input(type="uri_folder"), "factor": Input(type="integer", default=1)},
    outputs={"rows": Output(type="uri_file"), "beside": Output(type="uri_folder")},
    input_data="${{inputs.numbers}}",
    instance_count=2,
    max_concurrency_per_instance=2,
    mini_batch_size="3",
    mini_batch_error_threshold=0,
    error_threshold=0,
    logging_level="DEBUG",
    retry_settings={"max_retries": 1, "timeout": 30},
    environment_variables={"SUFFIX": "done"},
    task=RunFunction(
        code="./src", entry_script="scale.py", environment=environment,
        program_arguments="--factor ${{inputs.factor}} --beside ${{outputs.beside}}",
        append_row_to="${{outputs.rows}}",
    ),
)
again = load_component(here / "scale.yml")
registered = ml.components.create_or_update(load_component(here / "scale.yml"))
same((registered.type, registered.task.entry_script), ("parallel", "scale.py"), "a component is registered")
read = ml.components.get(f"scale_{UNIQUE}", "1")
same((read.type, read.input_data, read.mini_batch_size), ("parallel", "${{inputs.numbers}}", 1), "and read")

add = command(
    name="add", code="./src", command="python add.py ${{inputs.rows}} ${{outputs.sum}}", environment=environment,
    inputs={"rows": Input(type="uri_file")}, outputs={"sum": Output(type="uri_folder")},
)


@dsl.pipeline(default_compute="pool")
def numbers(data: Input, factor: int, size: str):
    first = scale(numbers=data, factor=factor)
    first.mini_batch_size = "${{parent.inputs.size}}"  # the SDK cannot write the object itself there
    total = add(rows=first.outputs.rows)
    return {"sum": total.outputs.sum, "rows": first.outputs.rows}


job = numbers(data=Input(path=str(here / "numbers"), type="uri_folder"), factor=3, size="7")
job.outputs.rows = Output(type="uri_file")
job = ml.jobs.create_or_update(job)
same(ended(ml, job.name), "Completed", "a pipeline with a parallel step ends")
ml.jobs.download(job.name, output_name="sum", download_path=here / "got")
text = (here / "got/named-outputs/sum/sum").read_text()
same(text, str(3 * sum(range(FILES))), "every file was counted once")
steps = {step.display_name: step for step in ml.jobs.list(parent_job_name=job.name)}
same(sorted(steps), ["scale", "total"], "its steps are children")
step = ml.jobs.get(steps["scale"].name)
same(step.command, "parallel scale.py --mini_batch_size 7 --output_file_name rows", "what a step is, in a line")
same((step.status, step.properties["zaffre.mini_batches_total"]), ("Completed", "3"), "a size that is an input of the pipeline")
ml.jobs.download(step.name, output_name="beside", download_path=here / "got")
beside = sorted(path.name for path in (here / "got/named-outputs/beside").iterdir())
same([name for name in beside if name.startswith("n")], [f"n{n:02}" for n in range(FILES)], "files beside the rows")
assert any(name.startswith("end-") for name in beside), beside
same((here / "got/named-outputs/beside/n07").read_text(), "done", "its variable")
ml.jobs.stream(job.name)

# A component from a file and one that is registered, each over one file.
(here / "one.txt").write_text("5")


@dsl.pipeline(default_compute="pool")
def one_file(data: Input):
    anonymous = again(numbers=data, factor=2)
    by_name = read(numbers=data, factor=4)
    return {"a": anonymous.outputs.rows, "b": by_name.outputs.rows}


job = ml.jobs.create_or_update(one_file(data=Input(path=str(here / "one.txt"), type="uri_file")))
same(ended(ml, job.name), "Completed", "components from a file and by name")
for output, wanted in (("a", "one.txt 10\n"), ("b", "one.txt 20\n")):
    ml.jobs.download(job.name, output_name=output, download_path=here / "got")
    rows = (here / "got/named-outputs" / output / "parallel_run_step.txt").read_text()
    same(rows, wanted, f"rows of {output}")

# What is refused.
(here / "job.yml").write_text("type: parallel\ninput_data: ${{inputs.d}}\ncompute: azureml:pool\n")
refused(lambda: load_job(here / "job.yml"), Exception, "parallel")


@dsl.pipeline(default_compute="pool")
def table(data: Input):
    step = scale(numbers=data)
    step.partition_keys = ["a"]


refused(
    lambda: ml.jobs.create_or_update(table(data=Input(path=str(here / "numbers"), type="uri_folder"))),
    HttpResponseError, "partitions of a table are not built yet")
