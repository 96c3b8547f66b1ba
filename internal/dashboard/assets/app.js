// What the page does beyond being read: it stays up to date, and sends what the operator
// does to the addresses of the function write.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const storedKey = "weir-write-key";

  // --- Up to date: what has data-live is made like the server's newest, piece by piece, so
  // that focus, scrolling and what was typed stay.

  // kept belongs to the reader: the server does not know it.
  const kept = { DETAILS: ["open"], DIALOG: ["open"], INPUT: ["value", "checked", "disabled"], OPTION: ["selected"], BUTTON: ["disabled"], FORM: ["data-busy"] };
  const own = new Set(["TEXTAREA", "OUTPUT", "SELECT"]);

  function morph(have, want) {
    if (have.nodeType !== want.nodeType || have.nodeName !== want.nodeName) {
      have.replaceWith(document.importNode(want, true));
      return;
    }
    if (have.nodeType !== Node.ELEMENT_NODE) {
      if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
      return;
    }
    if (own.has(have.nodeName)) return;
    const spared = kept[have.nodeName] || [];
    for (const a of [...have.attributes]) if (!want.hasAttribute(a.name) && !spared.includes(a.name)) have.removeAttribute(a.name);
    for (const a of want.attributes) if (have.getAttribute(a.name) !== a.value && !spared.includes(a.name)) have.setAttribute(a.name, a.value);
    morphChildren(have, want);
  }

  function morphChildren(have, want) {
    const named = new Map();
    for (const c of have.children) if (c.id) named.set(c.id, c);
    let at = have.firstChild;
    for (const w of [...want.childNodes]) {
      let match = w.id ? named.get(w.id) : null;
      if (!match && at && !w.id && !at.id && at.nodeName === w.nodeName) match = at;
      if (!match) {
        have.insertBefore(document.importNode(w, true), at);
        continue;
      }
      if (match === at) at = at.nextSibling;
      else have.insertBefore(match, at);
      morph(match, w);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  // inUse says that the reader marks text in it, or types in it.
  function inUse(region) {
    const s = getSelection();
    if (s && !s.isCollapsed && s.rangeCount && s.getRangeAt(0).intersectsNode(region)) return true;
    return region.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
  }

  function replace(fresh, all) {
    const focused = document.activeElement;
    for (const region of document.querySelectorAll("[data-live]")) {
      const newer = fresh.getElementById(region.id);
      if (newer && (all || !inUse(region)) && !region.isEqualNode(newer)) morph(region, newer);
    }
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  function say(text, late) {
    const pulse = byId("pulse");
    if (!pulse) return;
    pulse.textContent = text;
    pulse.classList.toggle("wrong", late);
  }

  const unwell = { 401: "the key is not accepted any more", 403: "the key is not accepted any more", 404: "this is not there any more", 503: "the server cannot answer now" };

  // refresh reads the page anew. fresh: nothing from the server's memory, for something was
  // done; then regions in use are replaced too.
  async function refresh(fresh) {
    try {
      const address = new URL(location.href), versioned = document.querySelector("[data-version]");
      if (versioned) address.searchParams.set("known", versioned.dataset.version);
      const answer = await fetch(address, { cache: fresh ? "reload" : "default", signal: AbortSignal.timeout(15000) });
      if (!answer.ok) return say("Not updated: " + (unwell[answer.status] || "the server answers " + answer.status) + ".", true);
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"), fresh);
      say("Updated every " + document.body.dataset.refresh + " s.", false);
    } catch (e) {
      say("Not updated: the server cannot be reached.", true);
    }
  }

  const period = Number(document.body.dataset.refresh) * 1000;
  if (period) {
    let timer = 0;
    const turn = async () => {
      clearTimeout(timer);
      timer = 0;
      await refresh(false);
      if (!document.hidden && !timer) timer = setTimeout(turn, period);
    };
    timer = setTimeout(turn, period);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        clearTimeout(timer);
        timer = -1; // hidden: no further turn
      } else turn();
    });
  }

  // --- Keyboard.

  document.addEventListener("keydown", (e) => {
    const typing = e.target.closest && e.target.closest("input, textarea, select, dialog, [contenteditable]");
    if (e.key !== "/" || typing || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    byId("find").focus();
    byId("find").select();
  });

  // --- What the operator does.

  function toast(text) {
    const t = document.createElement("p");
    t.className = "toast";
    t.textContent = text;
    byId("toasts").append(t);
    setTimeout(() => t.remove(), 8000);
  }

  // A key that is not used for keyIdle is forgotten: a tab that was left open, duplicated or restored must
  // not stay a way to change things.
  const keyIdle = 15 * 60 * 1000;

  function keepKey(key) {
    sessionStorage.setItem(storedKey, JSON.stringify({ key, usedAt: Date.now() }));
  }

  // keptKey returns the key of the function write, or null.
  function keptKey() {
    let kept = null;
    try {
      kept = JSON.parse(sessionStorage.getItem(storedKey));
    } catch { /* not ours: it is removed below */ }
    const age = kept ? Date.now() - kept.usedAt : NaN;
    if (age >= 0 && age < keyIdle) return kept.key;
    sessionStorage.removeItem(storedKey);
    return null;
  }
  setInterval(keptKey, 60 * 1000);

  // askKey gives the key the operator enters, or "".
  function askKey(wrong) {
    const dialog = byId("key"), field = byId("key-value"), text = byId("key-wrong");
    text.hidden = !wrong;
    text.textContent = wrong ? "This key is not accepted." : "";
    field.value = "";
    return new Promise((done) => {
      dialog.addEventListener("close", () => {
        const key = dialog.returnValue === "use" ? field.value.trim() : "";
        field.value = "";
        if (key) keepKey(key);
        done(key);
      }, { once: true });
      dialog.returnValue = "";
      dialog.showModal();
      field.focus();
    });
  }

  // question is what is to be asked before a form is sent: its own, or that of a box ticked in
  // it. A slip cannot be taken back from the CMS.
  function question(form) {
    const box = [...form.elements].find((f) => f.checked && f.dataset.ask);
    return box ? box.dataset.ask : form.dataset.ask || "";
  }

  // sure says whether the operator answers a question with yes.
  function sure(text) {
    const dialog = byId("ask");
    byId("ask-text").textContent = text;
    return new Promise((done) => {
      dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
      dialog.returnValue = "";
      dialog.showModal();
      byId("ask-no").focus(); // so that Enter does no harm
    });
  }

  // send asks for the key where the server wants one, and gives the answer, or null where the
  // operator gave none.
  async function send(address, method, body, type) {
    for (let tries = 0; ; tries++) {
      const headers = {}, key = keptKey();
      if (key) {
        keepKey(key);
        headers["x-functions-key"] = key;
      }
      if (type) headers["Content-Type"] = type;
      const answer = await fetch(address, { method, headers, body, cache: "no-store" });
      if (answer.status !== 401 && answer.status !== 403) return answer;
      sessionStorage.removeItem(storedKey);
      if (!(await askKey(tries > 0 || key !== null))) return null;
    }
  }

  function valueOf(field) {
    if (field.type === "checkbox") return field.checked ? true : undefined;
    const text = field.value;
    if (text === "" && !("keep" in field.dataset)) return undefined;
    if (field.type === "number" || field.dataset.type === "number") return Number(text);
    if (field.type === "datetime-local") return new Date(text + "Z").toISOString();
    return text;
  }

  function fields(form) {
    return [...form.elements].filter((f) => f.name && f.type !== "submit" && f.type !== "radio");
  }

  // json makes the body from the fields; a point in a name makes an object of its own.
  function json(form, more) {
    const out = {}, choices = (form.dataset.oneOf || "").split(" ");
    const chosen = form.elements.what ? form.elements.what.value : "";
    if (chosen === "all") out.all = true;
    for (const f of fields(form)) {
      if (chosen && choices.includes(f.name) && f.name !== chosen) continue;
      const value = chosen === f.name && f.type === "text" ? f.value : valueOf(f);
      if (value === undefined) continue;
      const [first, second] = f.name.split(".");
      if (second) (out[first] ||= {})[second] = value;
      else out[first] = value;
    }
    if (form.querySelector("[name^='filter.']")) out.filter ||= {};
    return JSON.stringify({ ...out, ...more });
  }

  function query(form, address) {
    const u = new URL(address, location.href);
    for (const f of fields(form)) {
      const value = f.name === "body" ? undefined : valueOf(f);
      if (value !== undefined) u.searchParams.set(f.name, String(value));
    }
    return u;
  }

  async function perform(form, dry) {
    const { action: address, send: way = "", method = "POST" } = form.dataset;
    if (way === "json") return send(address, method, json(form, dry ? { dryRun: true } : {}), "application/json");
    if (way === "text") return send(query(form, address), method, form.elements.body.value, "application/xml; charset=utf-8");
    return send(query(form, address), method);
  }

  async function read(answer) {
    try {
      return JSON.parse(await answer.text());
    } catch (e) {
      return {};
    }
  }

  function show(form, text, wrong) {
    const out = form.querySelector("output");
    if (!out) {
      if (text) toast(text);
      return;
    }
    out.textContent = text;
    out.classList.toggle("wrong", wrong);
  }

  function trouble(status, answer) {
    const lines = [answer.detail || answer.title || "The answer was " + status + "."];
    for (const p of answer.problems || []) lines.push("• " + (p.path ? p.path + ": " : "") + p.message);
    return lines.join("\n");
  }

  const few = (n, one, many) => n + " " + (n === 1 ? one : many);

  function estimate(seconds) {
    if (seconds < 90) return Math.max(1, Math.round(seconds)) + " s";
    if (seconds < 5400) return Math.round(seconds / 60) + " min";
    return (seconds / 3600).toFixed(1) + " h";
  }

  // counted shows what a dry run came to, and lets the replay be asked for. What would be
  // refused is among what matches.
  function counted(form, a) {
    const left = a.count - a.refused, go = form.querySelector("[data-after-dry]");
    let text = (a.complete === false ? "At least " : "") + few(a.count, "message", "messages") + " of " + few(a.keys, "key", "keys") + (a.count === 1 ? " matches." : " match.");
    if (a.refused) text += "\n" + a.refused + " of them would be refused: a later one of the key was delivered.";
    if (left) text += "\nTo replay " + few(left, "message", "messages") + " takes about " + estimate(a.estimatedSeconds) + ".";
    show(form, text, false);
    go.disabled = !left;
    go.textContent = left ? "Replay " + few(left, "message", "messages") : "Replay them";
  }

  function uncounted(form) {
    const go = form.querySelector("[data-after-dry]");
    if (!go || go.disabled) return;
    go.disabled = true;
    go.textContent = "Replay them";
    show(form, "", false);
  }

  // done says what was done. 202 says that it is asked for: the stage in that answer is the one
  // before, and nothing to tell.
  async function done(form, status, answer) {
    if (form.dataset.goto && answer.id) {
      const u = new URL(form.dataset.goto, location.href);
      u.pathname += encodeURIComponent(answer.id);
      location.assign(u);
      return;
    }
    show(form, "", false);
    const text = (status === 202 && form.dataset.asked) || form.dataset.done || "Done.";
    toast(text.replace(/\{(\w+)\}/g, (_, name) => answer[name] ?? "–"));
    await refresh(true);
    if (document.activeElement === document.body) byId("main").focus({ preventScroll: true });
  }

  document.addEventListener("submit", async (e) => {
    const form = e.target;
    if (!form.dataset.action) return;
    e.preventDefault();
    if ("busy" in form.dataset) return;
    const dry = e.submitter && e.submitter.name === "dryRun";
    form.dataset.busy = "";
    try {
      const ask = dry ? "" : question(form);
      if (ask && !(await sure(ask))) return;
      const answer = await perform(form, dry);
      if (answer === null) return;
      const body = await read(answer);
      if (!answer.ok) show(form, trouble(answer.status, body), true);
      else if (dry) counted(form, body);
      else await done(form, answer.status, body);
    } catch (err) {
      show(form, "The server cannot be reached. Nothing is known of what became of it: look before you try again.", true);
    } finally {
      delete form.dataset.busy;
    }
  });

  document.addEventListener("input", (e) => {
    if (e.target.form) uncounted(e.target.form);
    const choice = e.target.closest && e.target.closest("label.check");
    const radio = choice && choice.querySelector("input[type=radio]");
    if (radio && e.target !== radio) radio.checked = true; // to fill in the field is to choose it
  });

  // The body is loaded when it is to be edited: most messages never are.
  document.addEventListener("toggle", async (e) => {
    const area = e.target.open && e.target.querySelector("textarea[data-load]");
    if (!area || "loaded" in area.dataset) return;
    area.readOnly = true; // what is typed before it is there would be lost
    try {
      const answer = await fetch(area.dataset.load);
      if (!answer.ok) throw new Error(String(answer.status));
      area.value = await answer.text();
      area.dataset.loaded = "";
      area.readOnly = false;
    } catch (err) {
      show(area.form, "The body could not be read. Close this and open it again.", true);
    }
  }, true);
})();
