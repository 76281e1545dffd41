"""The style sheet and the script of a page; both are inside the file."""

from __future__ import annotations

# Okabe and Ito's colours, which people with any colour vision tell apart, without their black and
# with a blue that shows on dark ground too. A class "c0" to "c6" has the colour of its place.
COLOURS = ("#1F83C4", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B5A900")
_SHEET = """\
:root { --ground: #ffffff; --ink: #1b1f24; --quiet: #59636e; --line: #d5dae0; --panel: #f5f7f9;
  --faint: #b3bac2; --lit: #c2008f;
  --yes: #116329; --no: #a40e26; --open: #7a5200; --strong: #e6f4ea; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e4e8ec; --quiet: #98a3ae; --line: #343b43; --panel: #1d2126;
    --faint: #525b65; --lit: #ff7ad9;
    --yes: #5fcf80; --no: #ff8a8f; --open: #e3b341; --strong: #16301f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 20px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .8rem; text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: .2rem 0 .4rem; overflow-wrap: anywhere; }
.name { margin: 0; color: var(--quiet); overflow-wrap: anywhere; }
.verdict { margin: 0 0 .8rem; padding: .7rem .9rem; background: var(--panel); border-left: 5px solid var(--quiet); }
.verdict b { display: block; font-size: 1.1rem; }
.verdict b::first-letter { text-transform: uppercase; }
.yes { border-color: var(--yes); } .yes b { color: var(--yes); }
.no { border-color: var(--no); } .no b { color: var(--no); }
.open { border-color: var(--open); } .open b { color: var(--open); }
.unfinished { padding: .5rem .9rem; border: 1px dashed var(--open); color: var(--open); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; }
th, td { padding: .34rem .45rem; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; vertical-align: bottom; }
td { overflow-wrap: break-word; max-width: 34em; }
.sortable th button { all: unset; cursor: pointer; white-space: inherit; }
.sortable th button:hover { text-decoration: underline; }
.sortable th button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
.sortable th button::after { content: "\\2195"; position: absolute; opacity: .3; font-weight: 400; }
.sortable th[aria-sort="ascending"] button::after { content: "\\2191"; opacity: 1; }
.sortable th[aria-sort="descending"] button::after { content: "\\2193"; opacity: 1; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
td:first-child { min-width: 8em; }
.strong { background: var(--strong); font-weight: 600; }
.weak td { color: var(--open); }
ul { margin: .5rem 0 0; padding-left: 1.1rem; color: var(--quiet); font-size: .85rem; max-width: 75em; }
.warnings { list-style: none; padding: .6rem .9rem; margin: 0 0 .8rem; max-width: none;
  border: 1px solid var(--open); border-left-width: 5px;
  color: var(--ink); font-size: .9rem; }
.warnings b { color: var(--open); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: 0 0 .4rem; color: var(--ink); }
.swatch { width: 26px; height: 8px; margin-right: .4rem; vertical-align: middle; }
.base { color: var(--ink); } .other { color: var(--faint); }
.chart text { fill: var(--ink); font-size: 11px; }
.chart .label { paint-order: stroke; stroke: var(--panel); stroke-width: 3px; stroke-linejoin: round; }
.chart .title { font-size: 12.5px; font-weight: 600; text-anchor: middle; }
.chart .ticks, .chart .ticks text { fill: var(--quiet); font-size: 10.5px; }
.grid { stroke: var(--line); stroke-width: .7; } .axis, .line, .front, .thin, .lead, .cross { fill: none; stroke: currentColor; }
.axis { stroke: var(--quiet); } .line { stroke-width: 1.8; stroke-linejoin: round; } .base .line { stroke-dasharray: 6 3; }
.other .line { stroke-width: 1; } .thin { stroke-width: 1.2; opacity: .75; } .lead { stroke-width: .6; opacity: .6; }
.front { stroke: var(--quiet); stroke-width: 1.2; stroke-dasharray: 3 3; } .cross { stroke-width: 1.4; }
.band { fill: currentColor; opacity: .16; } .other .band { display: none; }
.dot { fill: currentColor; } .ring { fill: none; stroke: currentColor; stroke-width: 1.6; }
.lit:not(tr):not(li) { color: var(--lit); opacity: 1; } .lit .line { stroke-width: 3; } .lit .dot { stroke: var(--lit); stroke-width: 2; }
tr.lit td, tr.lit th, li.lit { background: var(--panel); }
.strips { width: 100%; table-layout: fixed; } .strips th.strip { width: 62%; } .strips th.number { width: 5.5em; }
.strips td { padding-top: .1rem; padding-bottom: .1rem; vertical-align: middle; max-width: none; overflow-wrap: anywhere; }
.strip svg { display: block; overflow: visible; }
.strip text { font-size: 11px; text-anchor: middle; fill: var(--quiet); font-weight: 400; }
.strips .line { stroke-width: 2; stroke-dasharray: none; } .strips .dot { opacity: .55; } .strips .thin { opacity: 1; }
.strips .other { color: var(--quiet); }
small { color: var(--open); }
.outputs { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); gap: 14px; align-items: start; }
.outputs + details { margin-top: .6rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .7rem; margin: 0 0 .5rem; font-size: .85rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
.outputs table { width: 100%; } .outputs td { overflow-wrap: anywhere; } .outputs td:last-child { min-width: 9em; }
.who { display: inline-block; margin-right: .8rem; } .right { color: var(--yes); font-weight: 600; }
mark { background: none; color: inherit; text-decoration: underline wavy var(--no) 1px; text-underline-offset: 3px; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); gap: 14px; align-items: start;
  grid-auto-flow: dense; }
figure, article { margin: 0; padding: 8px; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
.several { grid-column: 1 / -1; }
.several > img { display: inline-block; vertical-align: top; max-width: max(33% - 8px, min(100%, 300px)); margin-right: 6px; }
.several > .long { max-width: 100%; }
img { display: block; max-width: 100%; height: auto; margin: 0 0 6px; background: #ffffff; border-radius: 4px; }
summary { cursor: pointer; color: var(--quiet); padding: .3rem 0; }
footer { margin: 2.5rem 0 1rem; color: var(--quiet); font-size: .85rem; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  main { padding: 14px; }
  h1 { font-size: 1.3rem; }
  thead { display: none; }
  table, tbody, tr, td { display: block; width: 100%; }
  tr { border: 1px solid var(--line); border-radius: 6px; margin-bottom: .7rem; padding: .2rem 0; }
  td, td.number { display: flex; justify-content: space-between; gap: 1rem; text-align: right; white-space: normal; border: 0;
    padding: .16rem .7rem; min-width: 0; max-width: none; overflow-wrap: anywhere; }
  td::before { content: attr(data-label); color: var(--quiet); font-weight: 400; text-align: left; flex: none; max-width: 48%; }
  td:first-child { font-weight: 600; }
  td:empty { display: none; }
  .strips thead { display: block; border: 1px solid transparent; } .strips thead th { display: none; }
  .strips thead th.strip { display: block; width: 100%; padding: 0 .7rem; border: 0; }
  .strips tr { border: 0; border-bottom: 1px solid var(--line); border-radius: 0; margin: 0; display: grid;
    grid-template-columns: 1fr auto auto; }
  .strips td { width: auto; } .strips td.strip { grid-column: 1 / -1; order: 4; display: block; padding: 0 .7rem .3rem; }
  .strips td.strip::before, .strips td:first-child::before { content: none; } .strips td:first-child { justify-content: start; }
}
@media print {
  body { font-size: 11px; }
  main { max-width: none; padding: 0; }
  h2, h3, summary { break-after: avoid; }
  figure, article, tr { break-inside: avoid; }
  .sortable th button::after { content: none; }
  .wide { overflow: visible; } .wide table { font-size: 9px; } .wide th, .wide td { padding: 2px 4px; }
  .legend { break-after: avoid; } .legend + details { display: none; } .strips { font-size: 9.5px; }
  .figures, .outputs { grid-template-columns: 1fr 1fr; }
  details::details-content { content-visibility: visible; height: auto; }
}
"""
STYLE = _SHEET + "".join(
    f".c{place} {{ color: {colour}; }}\n" for place, colour in enumerate(COLOURS)
)
SCRIPT = """\
(() => {
  const powers = {k: 1, M: 2, G: 3, T: 4, P: 5};
  const worth = cell => {
    const text = (cell.dataset.value ?? cell.textContent).trim();
    if (/^[0-9]+(:[0-9]{2})+$/.test(text)) return text.split(":").reduce((whole, part) => 60 * whole + Number(part), 0);
    const found = /^[<[]? *([+-]?[0-9][0-9,]*\\.?[0-9]*(?:e[+-]?[0-9]+)?)\\s*([kMGTP](i?))?/.exec(text);
    if (found) return Number(found[1].replaceAll(",", "")) * (found[2] ? (found[3] ? 1024 : 1000) ** powers[found[2][0]] : 1);
    return text === "" || text === "-" ? null : text;
  };
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
    return typeof one === "number" ? one - other : one.localeCompare(other, "en", {numeric: true});
  };
  const sort = (table, head, down) => {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, row => [worth(row.cells[head.cellIndex]), row]);
    rows.sort(([one], [other]) => one === null || other === null || !down ? compare(one, other) : compare(other, one));
    body.append(...rows.map(([, row]) => row));
    for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.tHead.rows[0].cells) {
      if (!head.textContent.trim() || head.dataset.fixed !== undefined) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      const first = head.classList.contains("number");
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        sort(table, head, now ? now === "ascending" : first);
      });
    }
  }
  let lit;
  const light = event => {
    const row = event.target.closest?.("[data-row]")?.dataset.row;
    if (row === lit) return;
    for (const one of document.querySelectorAll(".lit")) one.classList.remove("lit");
    if (row !== undefined) for (const one of document.querySelectorAll(`[data-row="${row}"]`)) one.classList.add("lit");
    lit = row;
  };
  document.addEventListener("pointerover", light);
})();
"""
"""What the page does with a pointer or the keyboard: a click on a column's head sorts by it, and
what belongs to the row under the pointer is lit everywhere. Cells are numbers where they begin with
one ("[0.1, 0.2]", "1.2 M", "< 0.001", "0:01:30"); empty ones and "-" are last.
"""
