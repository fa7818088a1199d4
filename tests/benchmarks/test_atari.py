"""Curves, table and picture of Atari runs beside published figures."""

import json

import pytest

from benchmarks import atari, zoo

QUARTER = atari.STEPS_A_MILLION


def point(steps, episodes, mean):
    return {"steps": steps, "episodes": episodes, "mean_return": mean}


def test_a_million_frames_weigh_each_point_by_the_games_that_ended_since():
    points = [
        point(1_000, 0, None),
        point(2_000, 10, 1.0),
        point(QUARTER, 40, 5.0),
        point(QUARTER + 1, 40, 5.0),
        point(2 * QUARTER, 60, 9.0),
        point(2 * QUARTER + 1_000, 70, 100.0),  # of a million that the run did not finish
    ]
    assert atari.by_millions(points) == [4.0, 9.0]
    assert atari.by_millions([point(QUARTER, 0, None), point(2 * QUARTER, 5, 3.0)]) == []


def test_the_row_of_a_game_is_at_the_frames_that_all_its_runs_have():
    runs = [
        {"game": "breakout", "seed": 1, "seconds": 3600.0, "curve": [1.0, 2.0, 3.0]},
        {"game": "breakout", "seed": 2, "seconds": 7200.0, "curve": [2.0, 4.0]},
    ]
    dqn, rainbow, iqn = (atari.published()["breakout"][name][1] for name in atari.PEERS)
    assert atari.table(runs).splitlines()[2] == (
        f"| `breakout` | 2 | 2 | 1.50 | 3.0 | {dqn:,.1f} | {rainbow:,.1f} | {iqn:,.1f} |"
    )


def test_the_table_goes_between_its_marks_and_the_rest_of_the_page_stays():
    page = f"before\n{atari.BEGIN}old\n{zoo.END}after\n"
    runs = [{"game": "pong", "seed": 1, "seconds": 36.0, "curve": [-20.0]}]
    now = zoo.written(page, atari.table(runs), atari.BEGIN)
    assert now.startswith("before\n") and now.endswith("after\n") and "old" not in now and "| `pong` | 1 |" in now
    assert zoo.written(now, atari.table(runs), atari.BEGIN) == now


def test_the_picture_has_a_panel_per_game(tmp_path):
    runs = [{"game": game, "seed": 1, "seconds": 1.0, "curve": [1.0, 2.0]} for game in ("pong", "qbert")]
    atari.draw(runs, tmp_path / "atari.png")
    assert (tmp_path / "atari.png").read_bytes().startswith(b"\x89PNG")


def test_a_kept_run_is_not_made_again(tmp_path, monkeypatch):
    path = tmp_path / "atari.jsonl"
    path.write_text(json.dumps({"game": "pong", "seed": 1, "seconds": 1.0, "curve": []}) + "\n")

    def made(game, seed, words, folder):
        return {"game": game, "seed": seed, "settings": list(words), "seconds": 2.0, "curve": [1.0]}

    monkeypatch.setattr(atari, "made", made)
    atari.run(["pong", "qbert"], 1, 2, ["actors=4"], path)
    assert [(line["game"], line["settings"]) for line in atari.kept(path)[1:]] == [("qbert", ["actors=4"])]


def test_an_unknown_game_is_named_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["atari", "run", "pnog"])
    assert atari.main() == 2
    assert "pnog" in (said := capsys.readouterr().err) and "pong" in said


@pytest.mark.parametrize("game", atari.published())
def test_published_curves_have_a_figure_for_each_of_ten_million_frames(game):
    assert {name: len(curve) for name, curve in atari.published()[game].items()} == dict.fromkeys(atari.PEERS, 10)
