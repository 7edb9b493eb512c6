// SPDX-License-Identifier: MIT
// Every visible text with less than 4.5 : 1 (3 : 1 when large) between its colour and what lies behind it.
() => {
  const numbers = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const over = (top, under) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * alpha + under[i] * (1 - alpha));
  };
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(numbers(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => (layer.length ? over(layer, under) : under), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const bad = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || node.closest("script, style, title")) continue;
    const box = node.getBoundingClientRect();
    const style = getComputedStyle(node);
    if (!box.width || !box.height || style.visibility === "hidden" || node.closest("[disabled]")) continue;
    const svg = node.closest("svg");
    const colour = over(numbers(svg ? style.fill : style.color), behind(svg ? svg.parentElement : node));
    const [a, b] = [light(colour), light(behind(svg ? svg.parentElement : node))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if ((a + 0.05) / (b + 0.05) < needed) bad.add(`${((a + 0.05) / (b + 0.05)).toFixed(2)} ${node.tagName}.${node.className.baseVal ?? node.className}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return [...bad];
}
