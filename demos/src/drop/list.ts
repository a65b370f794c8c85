/** A list of which one entry is chosen, by mouse or arrow keys (listbox pattern). */

import { h } from "../lib/dom.js";

export class ChoiceList {
  private readonly items: HTMLElement[] = [];
  private chosen = -1;

  constructor(private readonly host: HTMLElement, private readonly onChoose: (index: number) => void) {
    host.addEventListener("keydown", (event) => {
      const to = { ArrowDown: this.chosen + 1, ArrowUp: this.chosen - 1, Home: 0, End: this.items.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.items.length - 1, to)));
    });
  }

  clear(): void {
    this.items.length = 0;
    this.chosen = -1;
    this.host.replaceChildren();
  }

  add(title: string, note: string, detail = ""): void {
    const index = this.items.length;
    const item = h("div", { role: "option", id: `${this.host.id}-${index}`, "aria-selected": "false", class: "entry", click: () => this.choose(index) },
      h("span", { class: "entry-title" }, title), h("span", { class: "entry-note numbers" }, note), detail ? h("span", { class: "entry-detail" }, detail) : null);
    this.items.push(item);
    this.host.append(item);
    if (this.chosen < 0) this.choose(0);
  }

  choose(index: number): void {
    this.items[this.chosen]?.setAttribute("aria-selected", "false");
    this.chosen = index;
    const item = this.items[index];
    if (!item) return;
    item.setAttribute("aria-selected", "true");
    this.host.setAttribute("aria-activedescendant", item.id);
    // not scrollIntoView: that would move the page as well; offsets are from the list, which is positioned
    const [top, bottom] = [item.offsetTop, item.offsetTop + item.offsetHeight];
    if (top < this.host.scrollTop) this.host.scrollTop = top;
    else if (bottom > this.host.scrollTop + this.host.clientHeight) this.host.scrollTop = bottom - this.host.clientHeight;
    this.onChoose(index);
  }
}

/** Tabs by the usual pattern: arrow keys move, one panel is shown. */
export function tabs(list: HTMLElement): void {
  const buttons = [...list.querySelectorAll<HTMLButtonElement>("[role=tab]")];
  const show = (index: number, focus: boolean): void => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === index));
      button.tabIndex = i === index ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")!)!.hidden = i !== index;
    });
    if (focus) buttons[index]!.focus();
  };
  buttons.forEach((button, i) => {
    button.addEventListener("click", () => show(i, false));
    button.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1 }[event.key];
      if (to !== undefined) show((to + buttons.length) % buttons.length, true);
    });
  });
}
