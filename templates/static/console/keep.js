// Small values in the browser's storage; where it grants none they last as long as the page.

function storage(name) {
  try {
    return window[name]; // reading the property is what throws
  } catch {
    return null;
  }
}

class Keep {
  constructor(name) {
    this.storage = storage(name);
    this.rest = new Map();
  }

  get(key) {
    return this.rest.get(key) ?? this.storage?.getItem(key) ?? null;
  }

  /** Null removes. */
  set(key, value) {
    this.rest.delete(key);
    try {
      if (value === null) this.storage?.removeItem(key);
      else this.storage.setItem(key, value);
    } catch {
      this.rest.set(key, value);
    }
  }
}

export const local = new Keep("localStorage");
export const session = new Keep("sessionStorage");
