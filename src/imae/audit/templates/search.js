"use strict";
// A class found by typing a part of its name.

const search = {
  dialog: document.getElementById("search"),
  text: document.getElementById("search-text"),
  list: document.getElementById("search-list"),
  found: [],
  place: 0,
  open() {
    this.text.value = "";
    this.show();
    this.dialog.showModal();
    this.text.focus();
  },
  show() {
    const wanted = this.text.value.trim().toLowerCase();
    const named = data.shown.map((name, number) => ({ name, number, at: name.toLowerCase().indexOf(wanted) }));
    this.found = named.filter(each => each.at >= 0).sort((one, two) => one.at - two.at || one.number - two.number).slice(0, 50);
    this.place = 0;
    this.list.replaceChildren(...this.found.map((each, place) => {
      const item = document.createElement("li");
      item.id = `class-${place}`;
      item.setAttribute("role", "option");
      item.textContent = each.number < data.keys.length ? `${each.name}  (${data.keys[each.number]})` : each.name;
      item.addEventListener("click", () => { this.place = place; this.take(); });
      return item;
    }));
    this.mark();
  },
  mark() {
    [...this.list.children].forEach((item, place) => {
      item.setAttribute("aria-selected", String(place === this.place));
      if (place === this.place) item.scrollIntoView({ block: "nearest" });
    });
    this.text.setAttribute("aria-activedescendant", this.found.length > 0 ? `class-${this.place}` : "");
  },
  take() {
    const chosen = this.found[this.place];
    if (chosen === undefined) return;
    this.dialog.close();
    decide("relabel", data.classes[chosen.number]);
  },
  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined) {
      this.place = Math.min(Math.max(this.place + by, 0), this.found.length - 1);
      this.mark();
    } else if (event.key === "Enter") this.take();
    else return;
    event.preventDefault();
  },
};

search.text.addEventListener("input", () => search.show());
search.text.addEventListener("keydown", event => search.key(event));
