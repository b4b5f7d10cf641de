from imae.train.plan import plan


def test_it_says_what_would_run_and_writes_nothing(configure, tmp_path):
    before = set(tmp_path.rglob("*"))
    planned = plan(configure(machine={"devices": 2}))
    assert set(tmp_path.rglob("*")) == before
    assert planned.num_rows == 65
    assert planned.total_steps == 15
    assert planned.epoch_seconds > 0
    assert abs(planned.total_seconds - 3 * planned.epoch_seconds) < 1e-9
    assert planned.num_parameters > 1000
    assert planned.settings["model.name"] == "small_cnn"
    assert planned.settings["machine.devices"] == "2"
    assert "noise" not in planned.settings
