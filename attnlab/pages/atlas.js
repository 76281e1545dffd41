(() => {
  const byId = id => document.getElementById(id), root = byId("atlas"), find = selector => root.querySelector(selector);
  const {levels, step, ramps, texts, meanings, examples} = JSON.parse(byId("atlas-data").textContent);
  const bar = find(".bar"), tip = find(".tip"), dark = matchMedia("(prefers-color-scheme: dark)");
  const panes = [];
  let query = 0, active = 0; /* the token that asks, in all panes, and the pane that keys go to */
  let tables, turn = 0, linking = 0; /* colours, and the timers of small maps and of the address */

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const options = names => names.map(([value, text]) => make("option", {value, textContent: text, title: meanings[value] ?? ""}));
  const titles = examples.map(({model, title}, place) => [place, [model, title].filter(Boolean).join(" \u00b7 ")]);
  const clamp = (value, count) => Math.max(0, Math.min(count - 1, Number.isInteger(value) ? value : 0));
  const digits = value => typeof value !== "number" ? "-" : value === 0 ? "0" : Math.abs(value) < 1e-3 ? value.toExponential(2)
    : Math.abs(value) < 1000 ? value.toPrecision(3) : Math.round(value).toLocaleString("en");
  const layerName = map => make("span", {className: "layer", textContent: map.name.replace(/[/.]/g, "$&\u200b")});
  const largestOf = row => Math.max(...row.map(Math.abs)) || 1;

  /* Codes of the weights of a head, decoded when it is first drawn. */
  const sizes = Float64Array.from({length: levels + 1}, (_, level) => level && Math.exp((level - levels) * step));
  const codesOf = (...place) => {
    const element = byId(`weights-${place.join("-")}`);
    if (!element.codes) {
      const text = atob(element.textContent), codes = element.codes = new Uint16Array(text.length / 2);
      for (let i = 0; i < codes.length; i++) codes[i] = text.charCodeAt(2 * i) | text.charCodeAt(2 * i + 1) << 8;
    }
    return element.codes;
  };

  /* Colours: 256 steps from the ground on, by the root of a weight; `tables` has that of every code. */
  const colourOf = (share, signed, theme = dark.matches ? "dark" : "light") =>
    ramps[theme][share < 0 ? "minus" : signed ? "plus" : "up"][Math.round(255 * Math.sqrt(Math.min(1, Math.abs(share))))];
  const setTables = () => {
    tables = [false, true].map(signed => Uint32Array.from({length: 2 * levels + 2}, (_, code) => {
      const [red, green, blue] = colourOf((code > levels ? -1 : 1) * sizes[code & levels], signed);
      return 0xff000000 | blue << 16 | green << 8 | red;
    }));
  };
  const paint = (canvas, codes, height, width, signed) => {
    Object.assign(canvas, {width, height});
    const pixels = new Uint32Array(codes.length), table = tables[Number(signed)];
    for (let i = 0; i < pixels.length; i++) pixels[i] = table[codes[i]];
    canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
  };
  /* A whole head in at most `most` x `most` pixels: of more, the largest weight of each block. */
  const paintWhole = (canvas, most, codes, rows, columns, signed) => {
    const side = Math.ceil(Math.max(rows, columns) / most), [height, width] = [rows, columns].map(all => Math.ceil(all / side));
    const blocks = side > 1 ? new Uint16Array(width * height) : codes;
    for (let row = 0, i = 0; side > 1 && row < rows; row++) {
      for (let column = 0, first = Math.floor(row / side) * width; column < columns; column++, i++) {
        const block = first + Math.floor(column / side);
        if ((codes[i] & levels) > (blocks[block] & levels)) blocks[block] = codes[i];
      }
    }
    paint(canvas, blocks, height, width, signed);
  };
  const once = (canvas, picture, draw) => { if (canvas.picture !== picture) draw(); canvas.picture = picture; };
  /* Small maps are drawn in turns of 12 ms, so that the page answers while it opens. */
  const waiting = [];
  const work = all => {
    const began = performance.now();
    while (waiting.length && (all === true || performance.now() - began < 12)) waiting.shift()();
    turn = waiting.length ? setTimeout(work) : 0;
  };

  const showTip = ({clientX, clientY}, title, lines) => {
    tip.replaceChildren(make("b", {textContent: title}), ...lines.map(line => make("div", {textContent: line})));
    tip.hidden = false;
    const {width, height} = tip.getBoundingClientRect(), top = clientY + (clientY + 18 + height > innerHeight ? -height - 10 : 18);
    Object.assign(tip.style, {left: `${Math.max(4, Math.min(clientX + 14, innerWidth - width - 8))}px`, top: `${top}px`});
  };
  const hideTip = () => { tip.hidden = true; };
  const apart = token => `\u2068${token}\u2069`; /* it keeps its direction to itself */
  const sought = token => bar.sought.value !== "" && token.toLowerCase().includes(bar.sought.value.toLowerCase());

  /* One example of one model: all its heads, and the chosen one. */
  class Pane {
    constructor(example) {
      Object.assign(this, {example, map: 0, head: 0, from: [0, 0], buffer: make("canvas")});
      this.element = find("template").content.firstElementChild.cloneNode(true);
      this.parts = Object.fromEntries(Array.from(this.element.querySelectorAll("[data-part]"), part => [part.dataset.part, part]));
      this.element.onpointerdown = this.element.onfocusin = () => activate(panes.indexOf(this));
      this.element.onchange = ({target}) => choose(this, {[target.dataset.part]: Number(target.value)});
      this.listen();
    }
    get maps() { return examples[this.example].maps; }
    get shown() { return this.maps[this.map]; }
    get queries() { return texts[this.shown.queries]; }
    get keys() { return texts[this.shown.keys]; }
    get self() { return this.shown.queries === this.shown.keys; }
    get codes() { return codesOf(this.example, this.map, this.head); }
    get picture() { return [this.example, this.map, this.head, dark.matches].join(); }
    get largest() { return this.shown.largest[this.head]; }
    get query() { return clamp(query, this.queries.length); }
    get before() { return this.keys.length - this.shown.grid[0] * this.shown.grid[1]; } /* keys that are no places */
    row(of = this.query) {
      const count = this.keys.length, codes = this.codes.subarray(of * count, (of + 1) * count);
      return Array.from(codes, code => (code > levels ? -this.largest : this.largest) * sizes[code & levels]);
    }
    strongest(row, most) {
      return Array.from(row.keys()).filter(key => row[key]).sort((a, b) => Math.abs(row[b]) - Math.abs(row[a])).slice(0, most);
    }

    tile(map, place, head, sorted) {
      const canvas = make("canvas", {width: 1, height: 1}), [rows, columns] = [texts[map.queries].length, texts[map.keys].length];
      const name = `${map.name}, head ${head}`, value = map.statistics[bar.statistic.value]?.[head] ?? null, {example} = this;
      const numbers = Object.entries(map.statistics).map(([label, values]) => `${label}: ${digits(values[head])}`);
      const onclick = () => { choose(this, {map: place, head}); if (innerWidth < 900) this.parts.detail.scrollIntoView(); };
      const button = make("button", {type: "button", className: "tile", onclick, ariaLabel: [name, ...numbers].join(", "),
        onpointermove: event => showTip(event, name, numbers), onpointerleave: hideTip}, canvas,
      ...sorted ? [layerName(map), `${head}: `] : [], bar.statistic.value ? digits(value) : String(head));
      button.dataset.row = map.row + head;
      canvas.classList.toggle("small", Math.max(rows, columns) < 60);
      waiting.push(() => canvas.isConnected && paintWhole(canvas, 80, codesOf(example, place, head), rows, columns, map.signed));
      turn ||= setTimeout(work);
      return {place, head, value, button};
    }
    drawOverview() {
      const {maps, parts: {overview}} = this, sign = {down: -1, up: 1}[bar.order.value], sorted = Boolean(sign && bar.statistic.value);
      const tiles = maps.flatMap((map, place) => map.largest.map((_, head) => this.tile(map, place, head, sorted)));
      this.tiles = new Map(tiles.map(({place, head, button}) => [`${place}-${head}`, button]));
      if (sorted) tiles.sort((a, b) => (a.value === null) - (b.value === null) || sign * (a.value - b.value));
      const grid = group => make("div", {className: "tiles"}, ...group.map(tile => tile.button));
      overview.classList.toggle("sorted", sorted);
      overview.style.setProperty("--heads", Math.max(...maps.map(map => map.largest.length)));
      overview.replaceChildren(...sorted ? [grid(tiles)] : maps.map((map, place) =>
        make("div", {className: "row"}, layerName(map), grid(tiles.filter(tile => tile.place === place)))));
    }
    drawHeading() {
      const {parts, shown, head} = this, heads = shown.largest.map((_, place) => [place, place]);
      for (const [name, all] of [["example", titles], ["map", this.maps.map((map, place) => [place, map.name])], ["head", heads]]) {
        parts[name].replaceChildren(...options(all));
        parts[name].value = this[name];
      }
      [parts.kind.textContent, parts.note.textContent] = [shown.kind, shown.note];
      const numbers = [...Object.entries(shown.statistics).map(([name, values]) => [name, values[head]]), ["largest weight", this.largest]];
      parts.numbers.replaceChildren(...numbers.map(([name, value]) =>
        make("li", {title: meanings[name] ?? ""}, `${name} `, make("b", {textContent: digits(value)}))));
      this.element.ariaLabel = `${titles[this.example][1]}: ${shown.name}, head ${head}`;
      for (const [place, tile] of this.tiles) {
        const chosen = place === `${this.map}-${head}`;
        Object.assign(tile, {tabIndex: chosen ? 0 : -1, ariaCurrent: chosen ? "true" : null});
        if (chosen && this.element.querySelector(".tile:focus")) tile.focus({preventScroll: true});
      }
    }
    drawTexts() {
      const {parts, self, shown} = this, drawn = `${shown.queries} ${shown.keys}`;
      for (const [list, tokens] of this.drawn === drawn ? [] : [[parts.query, this.queries], [parts.key, self ? [] : this.keys]]) {
        list.dir = tokens.filter(token => /[\u0590-\u08ff\ufb1d-\ufefc]/.test(token)).length > tokens.length / 2 ? "rtl" : "ltr";
        list.replaceChildren(...tokens.map(text => make("span", {className: "token", role: "option", dir: "auto", textContent: text})));
      }
      this.drawn = drawn;
      parts.queryTitle.textContent = self ? "Choose a token; the text is shaded by its weights" : "Choose a query";
      parts.key.hidden = parts.keyTitle.hidden = self || Boolean(shown.grid && byId(`image-${this.example}`));
      const row = this.row(), most = bar.stretch.value ? largestOf(row) : this.largest || 1;
      const shaded = (self ? parts.query : parts.key).children, chosen = parts.query.children[this.query];
      row.forEach((value, key) => {
        const colour = colourOf(value / most, shown.signed), [red, green, blue] = colour;
        shaded[key].style.backgroundColor = `rgb(${colour})`;
        shaded[key].style.color = .3 * red + .59 * green + .11 * blue > 118 ? "#111111" : "#f4f6f8";
      });
      if (parts.query.querySelector("[aria-selected]")) parts.query.querySelector("[aria-selected]").ariaSelected = null;
      chosen.ariaSelected = "true";
      parts.query.scrollTop = chosen.offsetTop - parts.query.clientHeight / 2;
    }
    drawStrongest(of = this.query) {
      const row = this.row(of), keys = this.strongest(row, 8), most = largestOf(row);
      this.parts.of.textContent = this.queries[of];
      this.parts.strongest.replaceChildren(...keys.map(key => make("li", {}, make("bdi", {textContent: this.keys[key]}),
        make("small", {textContent: key}), make("b", {textContent: digits(row[key])}), make("i", {style:
          `width:${100 * Math.abs(row[key]) / most}%;background:rgb(${colourOf(.4 * Math.sign(row[key]), this.shown.signed)})`}))));
    }

    /* What the large map shows: [first, count] of the queries and of the keys. */
    get margin() { return innerWidth < 700 ? 64 : 92; }
    get room() { return this.parts.plot.parentElement.clientWidth - this.margin - 2; }
    get window() {
      const wanted = {fit: Math.max(8, Math.floor(this.room / 13)), all: Infinity}[bar.window.value] ?? Number(bar.window.value);
      return [this.queries, this.keys].map(({length}, side) => {
        const count = Math.min(length, wanted);
        return [Math.min(this.from[side], length - count), count];
      });
    }
    follow() {
      const [[first, count], [, across]] = this.window, at = this.query;
      if (at >= first && at < first + count) return;
      this.from = [at - Math.floor(count / 2), this.self ? at - Math.floor(across * .8) : this.from[1]].map(place => Math.max(0, place));
    }
    drawPlot(hovered = {query: -1, key: -1}) {
      const {parts: {plot}, margin, room, buffer} = this, style = getComputedStyle(document.body), count = this.keys.length;
      const [[top, rows], [left, columns]] = this.window, cell = this.cell = Math.min(room / columns, 26);
      const [height, width] = [rows, columns].map(cells => margin + cells * cell + 2);
      Object.assign(plot, {width: width * devicePixelRatio, height: height * devicePixelRatio});
      Object.assign(plot.style, {width: `${width}px`, height: `${height}px`});
      once(buffer, [this.picture, top, left, rows, columns].join(), () => {
        const part = new Uint16Array(rows * columns), {codes} = this;
        for (let row = 0, i = top * count + left; row < rows; row++, i += count) part.set(codes.subarray(i, i + columns), row * columns);
        paint(buffer, part, rows, columns, this.shown.signed);
      });
      const context = plot.getContext("2d"), colour = name => style.getPropertyValue(`--${name}`);
      const frame = (name, x, y, across, down) => {
        context.strokeStyle = colour(name);
        context.strokeRect(margin + x * cell - .5, margin + y * cell - .5, across * cell + 1, down * cell + 1);
      };
      context.scale(devicePixelRatio, devicePixelRatio);
      Object.assign(context, {imageSmoothingEnabled: cell < 1, font: `${Math.min(12, Math.max(10, cell - 2))}px ${style.fontFamily}`});
      context.drawImage(buffer, margin, margin, columns * cell, rows * cell);
      frame("line", 0, 0, columns, rows);
      this.label(context, colour, this.queries, [top, rows], [this.query, hovered.query], false);
      this.label(context, colour, this.keys, [left, columns], [hovered.key], true);
      context.lineWidth = 1.5;
      if (this.query >= top && this.query < top + rows) frame("lit", 0, this.query - top, columns, 1);
      if (hovered.key >= 0) frame("lit", hovered.key - left, hovered.query - top, 1, 1);
      this.drawFinder(top, rows, left, columns);
    }
    /* A label for each token; where they do not fit, the numbers of some, and the tokens that are `meant`. */
    label(context, colour, tokens, [first, count], meant, turned) {
      const {cell, margin} = this, every = cell >= 10 ? 1 : 8 * Math.ceil(4 / cell);
      const fits = text => context.measureText(text).width < margin - 14;
      const cut = (text, end = Math.min(text.length, 40)) => end && !fits(text.slice(0, end)) ? cut(text, end - 1)
        : end < text.length ? `${text.slice(0, end)}\u2026` : text;
      for (let i = 0; i < count; i++) {
        const near = place => place >= 0 && Math.abs(place - first - i) * cell < 12, bold = meant.includes(first + i);
        if (!bold && every > 1 && (meant.some(near) || (first + i) % every)) continue;
        const at = margin + (i + .5) * cell;
        context.save();
        Object.assign(context, {textAlign: turned ? "left" : "right", textBaseline: "middle",
          fillStyle: colour(bold ? "lit" : every > 1 ? "quiet" : "ink")});
        context.translate(turned ? at : margin - 6, turned ? margin - 6 : at);
        if (turned) context.rotate(-Math.PI / 2);
        context.fillText(bold || every === 1 ? cut(tokens[first + i]) : String(first + i), 0, 0);
        context.restore();
      }
    }
    drawFinder(top, rows, left, columns) {
      const {finding, finder, frame} = this.parts, [down, across] = [this.queries.length, this.keys.length];
      const share = ([part, all]) => `${100 * part / all}%`;
      finding.hidden = rows === down && columns === across;
      if (!finding.hidden) once(finder, this.picture, () => paintWhole(finder, 160, this.codes, down, across, this.shown.signed));
      frame.style.inset = [[top, down], [across - left - columns, across], [down - top - rows, down], [left, across]].map(share).join(" ");
    }
    drawScale() {
      const [colours, ticks] = this.parts.scale.children, {signed} = this.shown;
      const roots = Array.from({length: 33}, (_, i) => signed ? i / 16 - 1 : i / 32);
      colours.style.background = `linear-gradient(to right,${roots.map(at => `rgb(${colourOf(at * Math.abs(at), signed)})`)})`;
      const shares = roots.filter((_, i) => i % 8 === 0).map(root => root * Math.abs(root));
      ticks.replaceChildren(...shares.map(share => make("span", {textContent: digits(share * this.largest)})));
    }
    drawOverlay() {
      const {parts: {overImage, overlay}, shown: {grid, signed}} = this, image = byId(`image-${this.example}`);
      overImage.hidden = !grid || !image;
      if (overImage.hidden) return;
      const scale = 320 / Math.max(image.naturalWidth, image.naturalHeight, 1), row = this.row().slice(this.before), most = largestOf(row);
      Object.assign(overlay, {width: image.naturalWidth * scale, height: image.naturalHeight * scale});
      const context = overlay.getContext("2d"), [across, down] = [overlay.width / grid[1], overlay.height / grid[0]];
      const box = place => [place % grid[1] * across, Math.floor(place / grid[1]) * down, across, down];
      Object.assign(context, {imageSmoothingEnabled: false, filter: "grayscale(1)"});
      context.drawImage(image, 0, 0, overlay.width, overlay.height);
      context.filter = "none";
      row.forEach((value, place) => {
        context.globalAlpha = .1 + .6 * Math.sqrt(Math.abs(value) / most);
        context.fillStyle = `rgb(${colourOf(value / most, signed, "dark")})`;
        context.fillRect(...box(place));
      });
      Object.assign(context, {globalAlpha: 1, strokeStyle: "#ff2fb9", lineWidth: 2});
      if (this.self && this.query >= this.before) context.strokeRect(...box(this.query - this.before));
    }
    draw() {
      this.follow();
      for (const part of ["Heading", "Texts", "Strongest", "Plot", "Scale", "Overlay"]) this[`draw${part}`]();
    }

    tell(event, of, key) {
      const row = this.row(of), lines = this.strongest(row, 5).map(each => `${digits(row[each])}  ${apart(this.keys[each])} (${each})`);
      showTip(event, `${apart(this.queries[of])} \u2192 ${apart(this.keys[key])}: ${digits(row[key])}`, lines);
    }
    listen() {
      const {plot, finder, overlay, query: asking, key: shaded} = this.parts;
      const within = ({clientX, clientY}, element) => { /* down and across, in pixels and as shares */
        const {left, top, width, height} = element.getBoundingClientRect();
        return [[clientY - top, height], [clientX - left, width]].map(([at, all]) => ({at, share: at / all}));
      };
      const cellAt = event => {
        const [of, key] = within(event, plot).map(({at}, side) => {
          const [first, count] = this.window[side], cell = Math.floor((at - this.margin) / this.cell);
          return cell >= 0 && cell < count ? first + cell : -1;
        });
        return {query: of, key};
      };
      const look = (event, cell) => {
        const inside = cell.query >= 0 && cell.key >= 0;
        this.drawPlot(inside ? cell : undefined);
        this.drawStrongest(inside ? cell.query : undefined);
        if (inside) this.tell(event, cell.query, cell.key); else hideTip();
      };
      plot.onpointermove = event => look(event, cellAt(event));
      plot.onpointerleave = event => look(event, {});
      plot.onclick = event => cellAt(event).query >= 0 && choose(this, {query: cellAt(event).query});
      const tokenAt = ({target}) => target.role === "option" ? Array.from(target.parentElement.children).indexOf(target) : -1;
      asking.onpointermove = shaded.onpointermove = event => tokenAt(event) >= 0 && (this.self || event.currentTarget === shaded)
        ? this.tell(event, this.query, tokenAt(event)) : hideTip();
      finder.onpointermove = finder.onclick = event => {
        if (!event.buttons && event.type !== "click") return;
        this.from = within(event, finder).map(({share}, side) => Math.max(0,
          Math.round(share * [this.queries, this.keys][side].length - this.window[side][1] / 2)));
        this.drawPlot();
      };
      const placeAt = event => {
        const [row, column] = within(event, overlay).map(({share}, side) => Math.floor(share * this.shown.grid[side]));
        return clamp(this.before + row * this.shown.grid[1] + column, this.keys.length);
      };
      overlay.onpointermove = event => this.tell(event, this.query, placeAt(event));
      overlay.onclick = event => this.self && choose(this, {query: placeAt(event)});
      asking.onclick = event => tokenAt(event) >= 0 && choose(this, {query: tokenAt(event)});
      asking.onpointerleave = shaded.onpointerleave = overlay.onpointerleave = hideTip;
    }
  }

  /* What is chosen: every way to choose ends here, and in the address of the page. */
  const activate = place => {
    active = place;
    panes.forEach((pane, other) => pane.element.classList.toggle("active", panes.length > 1 && other === place));
  };
  const linked = ({example, shown, head}, place) =>
    Object.entries({example, layer: shown.name, head}).map(([name, value]) => [name + ["", 2][place], value]);
  const choose = (pane, {example = pane.example, map = pane.map, head = pane.head, query: chosen = query}) => {
    const asked = query;
    if (pane.example !== clamp(example, examples.length)) pane.tiles = null;
    pane.example = clamp(example, examples.length);
    pane.map = clamp(map, pane.maps.length);
    pane.head = clamp(head, pane.shown.largest.length);
    query = Math.max(0, Number.isInteger(chosen) ? chosen : 0);
    for (const each of panes) {
      if (!each.tiles) each.drawOverview();
      if (each === pane || asked !== query) each.draw();
    }
    mark();
    const row = pane.row(), keys = pane.strongest(row, 1).map(key => `${pane.keys[key]} ${digits(row[key])}`);
    find(".aloud").textContent = `${pane.element.ariaLabel}, query ${pane.queries[pane.query]}: ${keys}`;
    clearTimeout(linking);
    const link = new URLSearchParams([["query", query], ...panes.flatMap(linked)]);
    linking = setTimeout(() => history.replaceState(null, "", `#${link}`), 200);
  };
  const setBeside = example => {
    panes.splice(1, 1, ...example === "" ? [] : [new Pane(clamp(Number(example), examples.length))]);
    bar.beside.value = panes[1]?.example ?? "";
    find(".panes").classList.toggle("two", panes.length > 1);
    find(".panes").replaceChildren(...panes.map(pane => pane.element));
    activate(panes.length - 1);
  };
  const open = () => {
    const chosen = new URLSearchParams(location.hash.slice(1)), number = name => Number(chosen.get(name) ?? 0);
    setBeside(chosen.get("example2") ?? "");
    panes.forEach((pane, place) => {
      const [mine, last] = [["", 2][place], chosen.has("query") ? number("query") : pane.queries.length - 1];
      const example = clamp(number(`example${mine}`), examples.length);
      const map = examples[example].maps.findIndex(({name}) => name === chosen.get(`layer${mine}`));
      choose(pane, {example, map, head: number(`head${mine}`), query: last});
    });
  };
  const mark = () => {
    for (const token of root.querySelectorAll(".token")) token.classList.toggle("sought", sought(token.textContent));
    const hits = Array.from(panes[active].queries.keys()).filter(place => sought(panes[active].queries[place]));
    bar.hits.value = bar.sought.value ? `${hits.indexOf(query) + 1 || "-"} of ${hits.length}` : "";
    return hits;
  };
  const redraw = () => panes.forEach(pane => choose(pane, {}));
  const drawAnew = () => { setTables(); panes.forEach(pane => pane.drawOverview()); redraw(); };
  const moves = {ArrowLeft: ["head", -1], ArrowRight: ["head", 1], ArrowUp: ["map", -1], ArrowDown: ["map", 1],
    k: ["query", -1], j: ["query", 1], e: ["example", 1]};
  const inText = {ArrowLeft: "k", ArrowUp: "k", ArrowRight: "j", ArrowDown: "j"};
  const actions = {b: () => activate((active + 1) % panes.length), "/": () => bar.sought.focus(), "?": () => find("dialog").showModal()};
  const move = (pane, part, by) => {
    const {length} = {head: pane.shown.largest, map: pane.maps, query: pane.queries, example: examples}[part];
    choose(pane, {[part]: (pane[part] + by + length) % length});
  };
  document.addEventListener("keydown", event => {
    const name = (event.shiftKey || event.target.closest?.(".reading")) && inText[event.key] || event.key;
    if (event.target.closest?.("select, input, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Object.hasOwn(moves, name)) move(panes[active], ...moves[name]);
    else if (Object.hasOwn(actions, name)) actions[name]();
    else return;
    event.preventDefault();
  });
  bar.onsubmit = event => {
    event.preventDefault();
    const hits = mark();
    if (hits.length) choose(panes[active], {query: hits.find(place => place > query) ?? hits[0]});
  };
  bar.sought.oninput = mark;
  bar.sought.onkeydown = event => event.key === "Escape" && bar.sought.blur();
  bar.help.onclick = actions["?"];
  bar.beside.onchange = () => { setBeside(bar.beside.value); redraw(); };
  bar.window.onchange = bar.stretch.onchange = redraw;
  bar.statistic.onchange = bar.order.onchange = drawAnew;
  const heads = examples.flatMap(({maps}, example) => maps.flatMap(({largest}, map) => largest.map((_, head) => ({example, map, head}))));
  document.addEventListener("click", event => {
    const row = event.target.closest?.("tr[data-row]"); /* of the table of all heads */
    if (row) choose(panes[active], heads[row.dataset.row]);
  });
  addEventListener("hashchange", open);
  addEventListener("resize", () => panes.forEach(pane => pane.drawPlot()));
  addEventListener("beforeprint", () => work(true));
  addEventListener("load", () => panes.forEach(pane => pane.drawOverlay()));
  dark.addEventListener("change", drawAnew);

  const statistics = Array.from(new Set(examples.flatMap(({maps}) => maps.flatMap(map => Object.keys(map.statistics)))));
  bar.statistic.replaceChildren(...options([...statistics.map(name => [name, name]), ["", "none"]]));
  const known = name => examples.some(({maps}) => maps.some(map => map.statistics[name]?.some(value => value !== null)));
  bar.statistic.value = statistics.find(known) ?? "";
  bar.statistic.parentElement.hidden = bar.order.parentElement.hidden = !statistics.length;
  bar.beside.append(...options(titles));
  root.classList.toggle("single", examples.length < 2);
  setTables();
  panes.push(new Pane(0));
  open();
})();
