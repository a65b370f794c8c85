// node drive.mjs FIREFOX URL < script: what the script evaluates to in a page at the URL, as JSON. Playwright needs a Firefox of
// its own build; puppeteer speaks WebDriver BiDi with the one that the system has.

import { text } from "node:stream/consumers";
import puppeteer from "puppeteer-core";

const [, , executablePath, url] = process.argv;
// software adapters are on Firefox's blocklist, and there is no other on a machine without a GPU
const extraPrefsFirefox = { "dom.webgpu.enabled": true, "gfx.webgpu.ignore-blocklist": true, "gfx.webgpu.force-enabled": true };
const browser = await puppeteer.launch({ browser: "firefox", executablePath, headless: true, extraPrefsFirefox });
try {
  const page = await browser.newPage();
  await page.goto(url);
  console.log(JSON.stringify(await page.evaluate(await text(process.stdin))));
} finally {
  await browser.close();
}
