// Names and focus that the theme leaves out: the search dialog, and tables that scroll.
document$.subscribe(() =>
  setTimeout(() => {
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
    for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
  }),
);
