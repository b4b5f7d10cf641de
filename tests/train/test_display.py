from imae.train.display import BarDisplay, Display, QuietDisplay

ROW = {"test_accuracy": 0.5, "validation_accuracy": None}


def show(display):
    display.start(0, 10)
    display.advance(3)
    display.measured(ROW)
    display.say("[red] must not be missed")
    display.close()


def test_the_plain_display_shows_nothing(capsys):
    show(Display())
    assert capsys.readouterr() == ("", "")


def test_the_quiet_one_shows_lines_alone(capsys):
    show(QuietDisplay())
    assert capsys.readouterr() == ("", "imae: [red] must not be missed\n")


def test_the_bar_shows_lines_as_they_are(capsys):
    show(BarDisplay())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "imae: [red] must not be missed" in captured.err
