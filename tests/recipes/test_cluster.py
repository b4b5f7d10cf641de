import socket
import sys
import threading
import time

import pytest

from imae.errors import ArgumentError, MissingExtraError
from imae.recipes.grid import build_jobs, run_jobs
from imae.recipes.runner import check_resources, needs, run_on_ray
from imae.records import RunFolder

SETTINGS = {"train": {"steps": 400, "checkpoint_every": 40}}


@pytest.fixture
def cluster():
    """A head without a processor of its own and two workers, all real processes."""
    pytest.importorskip("ray", reason="needs imae[cluster]")
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": 80_000_000},
    )
    workers = [made.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(2)]
    made.wait_for_nodes()
    yield made, workers
    made.shutdown()


@pytest.mark.parametrize(
    ("accelerator", "has_gpus", "number"),
    [("auto", True, 2), ("auto", False, None), ("cpu", True, None), ("gpu", False, 2)],
)
def test_a_run_asks_for_the_devices_it_will_use(recipe, tmp_path, accelerator, has_gpus, number):
    settings = {"machine": {"accelerator": accelerator, "devices": 2, "threads": 3}}
    job = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings=settings)[0]
    asked = needs(job, has_gpus=has_gpus)
    assert asked["num_cpus"] == 3
    assert asked.get("num_gpus") == number


@pytest.mark.slow  # a cluster of three nodes takes half a minute to start
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_run_whose_worker_is_killed_goes_on_elsewhere(recipe, tmp_path, cluster):
    made, workers = cluster
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings=SETTINGS)[:2]
    folders = [RunFolder(job.config.out) for job in jobs]
    at_kill = []

    def kill_one_when_both_train():
        while not all(any(folder.checkpoints.glob("*.pt")) for folder in folders):
            time.sleep(0.002)
        at_kill.extend(folder.result() for folder in folders)
        made.remove_node(workers[0], allow_graceful=False)

    thread = threading.Thread(target=kill_one_when_both_train)
    thread.start()
    said = []
    run_jobs(jobs, ray_address=made.address, say=said.append)
    thread.join()
    assert at_kill == [None, None]
    assert sum("ended after" in line for line in said) == 2
    for folder in folders:
        assert folder.result()["final"]["step"] == 400
        steps = [row["step"] for row in folder.history()]
        assert steps == sorted(set(steps))


@pytest.mark.filterwarnings("ignore")
def test_no_cluster_at_the_address_is_one_line(recipe, tmp_path):
    pytest.importorskip("ray", reason="needs imae[cluster]")
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={})[:1]
    with pytest.raises(ArgumentError, match=r"--ray nowhere") as refused:
        list(run_on_ray(jobs, "nowhere"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}"])
def test_nobody_at_a_port_is_said_at_once(recipe, tmp_path, address):
    pytest.importorskip("ray", reason="needs imae[cluster]")
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={})[:1]
    with socket.socket() as free:  # bound, and nobody listens
        free.bind(("127.0.0.1", 0))
        place = address.format(port=free.getsockname()[1])
        with pytest.raises(ArgumentError, match=f"--ray {place}: no answer"):
            list(run_on_ray(jobs, place))


class FewResources:
    """What a cluster says that it has."""

    @staticmethod
    def cluster_resources():
        return {"CPU": 2.0}


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"threads": 64}, "needs 64 processors, and this machine has 2"),
        ({"accelerator": "gpu"}, "needs 1 graphics cards, and this machine has 0"),
    ],
)
def test_a_run_that_this_machine_cannot_serve_is_refused(recipe, tmp_path, machine, message):
    settings = {"machine": machine}
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings=settings)[:1]
    with pytest.raises(ArgumentError, match=message):
        check_resources(FewResources, jobs)


def test_without_ray_the_extra_is_named(recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={})[:1]
    with pytest.raises(MissingExtraError, match=r"imae\[cluster\]"):
        list(run_on_ray(jobs, "local"))
