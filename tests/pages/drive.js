/* Stands at the beginning of a page under test: its errors, what a reader does, and what is seen then. */
const errors = [];
addEventListener("error", event => errors.push(event.message));
addEventListener("unhandledrejection", event => errors.push(String(event.reason)));
console.error = (...words) => errors.push(words.join(" "));

const write = value => document.body.append(Object.assign(document.createElement("pre"),
  {id: "outcome", textContent: JSON.stringify([value, errors])}));
const runLater = body => body().then(write, error => { errors.push(String(error)); write(null); });
const wait = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const all = selector => Array.from(document.querySelectorAll(selector)), first = selector => document.querySelector(selector);
const tokens = () => all("[data-part=query] .token");
const press = (key, more = {}) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, ...more}));
const point = (element, clientX, clientY) =>
  element.dispatchEvent(new PointerEvent("pointermove", {clientX, clientY, bubbles: true}));
const set = (name, value) => {
  const field = first(".bar")[name];
  field.value = value;
  field.dispatchEvent(new Event(field.tagName === "INPUT" ? "input" : "change", {bubbles: true}));
};
const chosen = () => ({
  head: [first("[data-part=map]").selectedOptions[0].text, Number(first("[data-part=head]").value), first("[aria-selected]").textContent],
  numbers: first(".numbers").textContent,
  strongest: Array.from(first(".strongest").children, item => [item.children[0].textContent, Number(item.children[2].textContent)]),
});

const cases = {
  async choosing() {
    const states = [], note = () => states.push(chosen()), bar = first(".bar");
    note();
    all(".tile")[6].click();
    note();
    press("ArrowRight");
    press("ArrowDown");
    note();
    press("ArrowLeft", {shiftKey: true});
    note();
    tokens()[5].click();
    note();
    press("/");
    const focused = document.activeElement.name;
    set("sought", "T12");
    const hits = bar.hits.value;
    bar.requestSubmit();
    note();
    press("e");
    note();
    first("tr[data-row='5']").click();
    note();
    press("?");
    await wait(400);
    return {states, focused, hits, open: first("dialog").open, hash: location.hash, aloud: first(".aloud").textContent,
      sought: all(".sought").map(token => token.textContent)};
  },
  async pointing() {
    const tip = first(".tip"), bare = element => element.textContent.replace(/[\u2066-\u2069]/g, "");
    const read = () => tip.hidden ? [] : Array.from(tip.children, bare).slice(0, 2).flatMap(line => line.split(/: |  /));
    tokens()[3].dispatchEvent(new PointerEvent("pointermove", {bubbles: true}));
    const text = read();
    set("window", "all");
    const {left, top, width, height} = first(".plot").getBoundingClientRect(), side = (width - 94) / 60;
    point(first(".plot"), left + 92 + 7.5 * side, top + 92 + 9.5 * side);
    const map = read(), strongest = chosen().strongest[0];
    point(first(".plot"), left + 5, top + 5);
    return {text, map, strongest, outside: read(), square: Math.abs(width - height) < 1};
  },
  async comparing() {
    set("order", "down");
    const sorted = all(".tile").map(tile => tile.textContent.split(": ")[1]);
    set("order", "layers");
    set("beside", "1");
    const beside = all(".pane").map(pane => pane.getAttribute("aria-label"));
    await wait(400);
    const {hash} = location;
    all(".pane")[1].querySelectorAll(".token")[4].click();
    const asked = all("[aria-selected]").map(token => token.textContent);
    location.hash = "#example=2&query=1";
    await wait(100);
    const overlay = first(".overlay"), context = overlay.getContext("2d");
    return {sorted, beside, hash, asked, tokens: tokens().map(token => token.textContent), direction: getComputedStyle(tokens()[6]).direction,
      kind: first(".kind").textContent, small: all(".tile canvas").map(canvas => [canvas.width, canvas.height]),
      size: [overlay.width, overlay.height], opaque: context.getImageData(9, 9, 1, 1).data[3]};
  },
  async moving() {
    const top = () => parseFloat(first(".framed i").style.inset), begin = top(), finder = first(".finder");
    const box = finder.getBoundingClientRect();
    finder.dispatchEvent(new MouseEvent("click", {clientX: box.left + 1, clientY: box.top + 1}));
    const moved = top();
    press("j");
    await wait(200);
    return {...chosen(), places: [begin, moved, top()], width: first(".plot").clientWidth, small: first(".tile canvas").width};
  },
};
