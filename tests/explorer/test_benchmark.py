"""That benchmarks/explorer.py times what it says."""

import explorer

from minibert.explorer import show


def test_each_keystroke_that_is_timed_computes_and_no_frame_of_hovering_does(browser, tmp_path):
    path = tmp_path / "page.html"
    show(explorer.random_model(tmp_path / "random", "1-12-2")).save(path)
    page = explorer.opened(browser, path)
    found = explorer.measure(page, path, ["w1", "w2", "w3"], 8, rounds=8, frames=5)
    assert found["pieces"] == 8
    assert found["MB"] == round(path.stat().st_size / 1e6, 2)
    for times in (found[name] for name in found if name.endswith("ms")):
        assert 0 < times["median"] <= times["slowest tenth"]
    # When it was opened, for the text before each of the two measurements, and for each keystroke.
    assert page.evaluate("explorer.counts.forwards") == 1 + 2 + 8 + 2
    page.context.close()
