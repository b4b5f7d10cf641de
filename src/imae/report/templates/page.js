"use strict";
// Nothing here reads or writes markup: lines are shown or hidden, outlines and words replaced.

for (const button of document.querySelectorAll("button[data-series]")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    const wanted = `g[data-series="${Number(button.dataset.series)}"]`;
    for (const line of button.closest("section").querySelectorAll(wanted)) {
      line.classList.toggle("off", !shown);
    }
  });
}

for (const section of document.querySelectorAll("section.distribution")) {
  const slider = section.querySelector("input");
  const stops = JSON.parse(section.querySelector("script").textContent);
  const show = () => {
    const stop = Number(slider.value);
    section.querySelector("output").textContent = `epoch ${stops.epochs[stop]}`;
    slider.setAttribute("aria-valuetext", `epoch ${stops.epochs[stop]}`);
    section.querySelectorAll("figure").forEach((figure, number) => {
      const frame = stops.panels[number][stop];
      for (const outline of figure.querySelectorAll("path[data-kind]")) {
        outline.setAttribute("d", frame.outlines[outline.dataset.kind] || "");
      }
      for (const words of figure.querySelectorAll("desc")) words.textContent = frame.words;
      figure.querySelector("p.words").textContent = frame.words;
    });
  };
  slider.addEventListener("input", show);
  section.querySelector(".slider").hidden = false;
  show();
}

// The values under the pointer, as text in the chart; the names are those of the table below it.
function addText(group, x, y, words, anchor) {
  const text = document.createElementNS(group.namespaceURI, "text");
  text.setAttribute("class", "value");
  text.setAttribute("x", x);
  text.setAttribute("y", y);
  text.setAttribute("text-anchor", anchor);
  text.textContent = words;
  group.append(text);
}

for (const svg of document.querySelectorAll("figure.chart > svg")) {
  const figure = svg.closest("figure");
  const values = JSON.parse(svg.nextElementSibling.textContent);
  const box = svg.viewBox.baseVal;
  const names = figure.querySelectorAll("thead th");
  const hover = document.createElementNS(svg.namespaceURI, "g");
  svg.append(hover);
  const clear = () => hover.replaceChildren();
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const at = ((event.clientX - frame.left) * box.width) / frame.width;
    let near = 0;
    values.x.forEach((x, place) => {
      if (Math.abs(x - at) < Math.abs(values.x[near] - at)) near = place;
    });
    clear();
    const x = values.x[near];
    const guide = document.createElementNS(svg.namespaceURI, "line");
    for (const [name, value] of [["class", "guide"], ["x1", x], ["x2", x], ["y1", 12], ["y2", 196]]) {
      guide.setAttribute(name, value);
    }
    hover.append(guide);
    const anchor = x > box.width / 2 ? "end" : "start";
    const place = anchor === "end" ? x - 5 : x + 5;
    let y = 22;
    addText(hover, place, y, values.at[near], anchor);
    values.lines.forEach((line, number) => {
      const drawn = svg.querySelector(`g[data-series="${number}"]`);
      if (line[near] === null || drawn.classList.contains("off")) return;
      y += 13;
      addText(hover, place, y, `${names[number + 1].textContent} ${line[near]}`, anchor);
    });
  });
}
