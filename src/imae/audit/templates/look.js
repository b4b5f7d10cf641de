"use strict";
// One row in a dialog: its picture enlarged, its whole text, all of its columns.

const look = {
  dialog: document.getElementById("look"),
  content: document.getElementById("look-content"),
  open(index) {
    const row = data.rows[index];
    const shown = cards[index].querySelector(".preview").firstElementChild;
    if (shown === null) return;
    const suggested = row.suggested === null ? "no class" : data.shown[row.suggested];
    const change = row.suggested === row.given ? data.shown[row.given] : `${data.shown[row.given]} → ${suggested}`;
    document.getElementById("look-title").textContent = `${change}: ${row.id}`;
    const copy = shown.cloneNode(true);
    this.content.replaceChildren(copy);
    this.dialog.showModal();
    if (data.served && copy.className === "photo") this.enlarge(copy, row.id);
  },
  // The server has more pixels than the page. They come as data, the only images a page may show.
  async enlarge(image, rowId) {
    try {
      const answer = await fetch(`picture/${encodeURIComponent(rowId)}`);
      if (!answer.ok) return;
      const reader = new FileReader();
      reader.addEventListener("load", () => { image.src = reader.result; });
      reader.readAsDataURL(await answer.blob());
    } catch {
      // the server is gone: the small picture stays
    }
  },
};

look.dialog.addEventListener("close", () => moveTo(current));
look.dialog.addEventListener("click", event => { // beside the dialog
  if (event.target === look.dialog) look.dialog.close();
});
