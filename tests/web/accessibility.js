// What a tool for accessibility would look at, on the page as it stands: gives a list of problems in words.
() => {
  const problems = [];
  const shown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const words = (node) => (node.getAttribute("aria-label") || document.getElementById(node.getAttribute("aria-labelledby"))?.textContent || node.textContent || node.title || "").trim();
  const what = (node) => `<${node.tagName.toLowerCase()}${node.id ? ` #${node.id}` : ""}> ${words(node).slice(0, 40)}`;
  if (!document.documentElement.lang) problems.push("the page has no language");
  if (document.querySelectorAll("h1").length !== 1) problems.push("the page has not one h1");
  if (document.querySelectorAll("main").length !== 1) problems.push("the page has not one main");
  const ids = [...document.querySelectorAll("[id]")].map((n) => n.id);
  for (const id of new Set(ids.filter((x, i) => ids.indexOf(x) !== i))) problems.push(`the id ${id} is there twice`);
  for (const node of document.querySelectorAll("button, a[href], summary, [role=tab], [role=button]")) if (shown(node) && !words(node)) problems.push(`no name: ${node.outerHTML.slice(0, 80)}`);
  for (const node of document.querySelectorAll("input, select, textarea")) {
    if (!node.labels?.length && !node.getAttribute("aria-label") && !node.getAttribute("aria-labelledby")) problems.push(`no label: ${node.outerHTML.slice(0, 80)}`);
  }
  for (const node of document.querySelectorAll("img:not([alt]), svg:not([aria-hidden]):not([role]):not([aria-label])")) if (shown(node) && !node.closest("[aria-hidden]")) problems.push(`a picture without words: ${node.outerHTML.slice(0, 80)}`);
  for (const node of document.querySelectorAll("[aria-labelledby], [aria-controls], [aria-describedby]")) {
    for (const name of ["aria-labelledby", "aria-controls", "aria-describedby"]) for (const id of (node.getAttribute(name) ?? "").split(/\s+/).filter(Boolean)) if (!document.getElementById(id)) problems.push(`${name} of ${what(node)} points to nothing: ${id}`);
  }
  let level = 1;
  for (const node of document.querySelectorAll("h1, h2, h3, h4")) {
    if (!shown(node)) continue;
    const own = Number(node.tagName[1]);
    if (own > level + 1) problems.push(`a level is left out before ${what(node)}`);
    level = own;
  }
  for (const node of document.querySelectorAll(".code, .table-wrap, .timeline-box, .reader-text")) {
    if (shown(node) && (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1) && node.tabIndex < 0 && !node.closest("[tabindex='0']")) problems.push(`scrolls, but not by keyboard: ${what(node).slice(0, 60)}`);
  }

  const foot = document.querySelector("footer").getBoundingClientRect().bottom + scrollY;
  if (document.documentElement.scrollHeight > Math.max(innerHeight, foot) + 2) problems.push(`the page goes on below its foot: ${document.documentElement.scrollHeight - foot} pixels`);

  // contrast of each text with what is painted behind it
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const behind = (node) => {
    const layers = [];
    for (let n = node; n; n = n.parentElement) {
      const layer = rgba(getComputedStyle(n).backgroundColor);
      if (layer[3]) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !shown(node) || node.closest("svg, [disabled], .visually-hidden, .skip, script, style, select, option")) continue;
    const style = getComputedStyle(node);
    const back = behind(node);
    const front = over(rgba(style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${text.data.trim().slice(0, 40)}`);
  }
  return [...new Set(problems)];
}
