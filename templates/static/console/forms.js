// The dialogs: settings of a conversation, its name, the API key; and the keys that move through menus.
import { $ } from "./dom.js";
import { readKey, writeKey } from "./api.js";

const NUMBERS = ["temperature", "top_p", "top_k", "repetition_penalty", "max_tokens", "seed"];

/** Opens a dialog; resolves to its form's fields, or null where it was dismissed. */
function ask(dialog) {
  dialog.returnValue = "";
  dialog.querySelector("[type=button]").onclick = () => dialog.close(); // Enter presses a form's first submit button
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      if (document.activeElement.matches("body, dialog, dialog *")) $("input").focus(); // none to give it back to
      resolve(dialog.returnValue === "ok" ? dialog.querySelector("form").elements : null);
    };
  });
}

export async function editSettings(conversation) {
  const dialog = $("settings");
  const { elements } = dialog.querySelector("form");
  elements.system.value = conversation.system;
  for (const name of NUMBERS) elements[name].value = conversation.sampling[name] ?? "";
  if (!(await ask(dialog))) return false;
  conversation.system = elements.system.value;
  conversation.sampling = Object.fromEntries(NUMBERS.filter((name) => elements[name].value !== "").map((name) => [name, Number(elements[name].value)]));
  conversation.meta = Date.now();
  return true;
}

export async function rename(conversation) {
  const dialog = $("rename");
  dialog.querySelector("form").elements.title.value = conversation.title;
  const fields = await ask(dialog);
  if (!fields) return false;
  Object.assign(conversation, { title: fields.title.value.trim(), meta: Date.now() });
  return true;
}

let asking;
/** Asks for the API key, once however many ask; true when one was given. `failure`: what was said of the last one. */
export function askKey(failure) {
  $("key-refusal").textContent = (readKey() && failure?.message) || "";
  asking ??= ask($("key")).then((fields) => {
    asking = null;
    if (fields) writeKey(fields.key.value.trim(), fields.remember.checked);
    $("key").querySelector("form").reset();
    return Boolean(fields);
  });
  return asking;
}

/** Arrow keys, Home and End move through an open menu; focus starts on what is chosen. */
export function menuKeys(menu) {
  const items = () => [...menu.querySelectorAll("[role^=menuitem]")];
  menu.ontoggle = ({ newState }) => {
    if (newState === "open") (menu.querySelector("[aria-checked=true]") ?? items()[0])?.focus();
  };
  menu.onkeydown = (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all.at(to % all.length).focus();
  };
}
