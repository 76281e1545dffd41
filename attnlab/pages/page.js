(() => {
  const powers = {k: 1, M: 2, G: 3, T: 4, P: 5};
  const worth = cell => {
    const text = (cell.dataset.value ?? cell.textContent).trim();
    if (/^[0-9]+(:[0-9]{2})+$/.test(text)) return text.split(":").reduce((whole, part) => 60 * whole + Number(part), 0);
    const found = /^[<[]? *([+-]?[0-9][0-9,]*\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*([kMGTP](i?))?/.exec(text);
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
