from imae.recipes.protocols import noise_grid


def test_every_rate_with_every_method_over_the_shared_settings():
    shared = {"seed": 3, "method": {"name": "cce"}}
    cells = noise_grid(shared, kind="symmetric", rates=(0, 60), losses=("imae", "gce"))
    assert [cell.name for cell in cells] == ["0-imae", "0-gce", "60-imae", "60-gce"]
    assert cells[0].settings["method"] == {"name": "imae", "arguments": {"T": 0.5}}
    assert cells[2].settings["method"] == {"name": "imae", "arguments": {"T": 8.0}}
    assert cells[3].columns == {"Noise": "60%", "Method": "GCE"}
    assert {cell.settings["seed"] for cell in cells} == {3}
    assert shared["method"] == {"name": "cce"}
