// The fleet as the server lists it, and the menu to choose from.
import { $, h } from "./dom.js";
import { bytes } from "./format.js";
import { getJson } from "./api.js";

/** Whether a vault's experts, trunk and window fit the engine's memory together: else experts stream from disk. */
const fits = (model, limit) => (limit && model.memory_bytes ? model.memory_bytes < 0.85 * limit : undefined);

export class Models {
  constructor(chosen) {
    this.list = [];
    this.chosen = chosen;
    $("models").onbeforetoggle = () => {
      $("models").style.left = `clamp(8px, ${$("model").getBoundingClientRect().left}px, 100vw - 468px)`;
    };
  }

  async refresh() {
    this.list = (await getJson("/v1/models")).data;
    this.known = true;
  }

  get active() {
    return this.list.find((model) => model.active) ?? this.list[0];
  }

  /** The vault that a conversation's next message runs on. */
  of(conversation) {
    return this.list.find((model) => model.id === conversation.model) ?? this.active;
  }

  /** Whether the engine leaves another vault for it. One that is down boots whichever is asked for. */
  switchesTo(model) {
    return this.known && this.list.some((other) => other.active && other !== model);
  }

  anatomy(model) {
    const { quant, model_type: type, moe_layers: layers, experts_per_layer: experts, vault_bytes, scout_bytes } = model;
    const size = vault_bytes + scout_bytes;
    return [type, layers && `${layers} layers × ${experts} experts`, quant, size && bytes(size)].filter(Boolean).join(" · ");
  }

  show(conversation, limit) {
    const current = this.of(conversation);
    $("model-name").textContent = current?.id ?? (this.known ? "No vault" : "…");
    $("model-quant").textContent = current?.quant ?? "";
    $("models").replaceChildren(...this.list.map((model) => this.item(model, model === current, limit)));
  }

  item(model, checked, limit) {
    const fit = fits(model, limit);
    const tags = [
      model.active && h("span", { className: "tag on" }, "active"),
      fit !== undefined && h("span", { className: "tag" }, fit ? "fits memory" : "streams from disk"),
    ];
    const onclick = () => {
      $("models").hidePopover();
      this.chosen(model);
    };
    return h("button", { role: "menuitemradio", "aria-checked": String(checked), title: model.lineage || model.description, onclick },
      h("span", { className: "row" }, h("strong", {}, model.id), h("span", { className: "tag" }, model.quant), ...tags),
      h("small", {}, this.anatomy({ ...model, quant: "" })),
      model.lineage && h("small", {}, model.lineage));
  }
}
