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
      figure.querySelector("desc").textContent = frame.words;
      figure.querySelector("p.words").textContent = frame.words;
    });
  };
  slider.addEventListener("input", show);
  section.querySelector(".slider").hidden = false;
  show();
}
