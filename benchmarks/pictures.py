"""The pictures of the documentation, light and dark.

    python benchmarks/pictures.py curves                     # weight curves and the pipeline
    python benchmarks/pictures.py page RUN/audit/review.html audit [--width 1280] [--height 800]

Pages are photographed by Chromium, as a reader sees their first screen; a phone's is 390 by 844.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
_GROUND = "#1e2129"  # of the site's dark pages
_STYLES: dict[str, list[str | dict[str, str]]] = {
    "light": ["default"],
    "dark": [
        "dark_background",
        dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), _GROUND),
    ],
}


def draw_curves() -> None:
    import matplotlib.style

    from imae.curves import parse_curve
    from imae.recipes.tables.paper_figures import draw_pipeline, draw_weights

    compared = {name: parse_curve(name) for name in ("cce", "mae", "imae:T=8")}
    by_T = {  # noqa: N806
        f"T = {T:g}": parse_curve(f"imae:T={T:g}") for T in (16, 8, 4, 2, 1, 0.5, 0)
    }
    for scheme, style in _STYLES.items():
        with matplotlib.style.context(style), tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            draw_weights(out, "weights", "Weight of an example", compared)
            draw_weights(out, "imae_weights", "Weight of an example under IMAE", by_T)
            draw_pipeline(out)
            for picture in out.glob("*.png"):
                shutil.copy(picture, FIGURES / f"{picture.stem}-{scheme}.png")


def photograph(page: Path, name: str, width: int, height: int) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for scheme in _STYLES:
            opened = chromium.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            opened.goto(page.resolve().as_uri())
            target = FIGURES / f"{name}-{scheme}.png"
            opened.screenshot(path=str(target))
            # 256 colours: a picture for a README, a third of the size.
            Image.open(target).convert("RGB").quantize(256).save(target, optimize=True)
        chromium.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("curves")
    of_page = parts.add_parser("page")
    of_page.add_argument("page", type=Path)
    of_page.add_argument("name")
    of_page.add_argument("--width", type=int, default=1280)
    of_page.add_argument("--height", type=int, default=800)
    given = parser.parse_args()
    if given.part == "curves":
        draw_curves()
    else:
        photograph(given.page, given.name, given.width, given.height)
