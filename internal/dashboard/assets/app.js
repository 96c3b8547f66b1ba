// This script keeps the page up to date. It sends the operator's changes to the addresses of the
// functions write and schedules.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const storedKey = (name) => "weir-" + name + "-key"; // where the key of a function is stored

  // --- Updates. The script changes elements with data-live node by node to the server's newest state,
  // so that focus, scroll position and typed text stay.

  // kept are attributes that the reader sets by using the page. The server does not know their values.
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

  // --- Times. The server writes times in UTC. A reader can choose to see them in the browser's zone.

  const storedZone = "weir-times";
  const two = (n) => String(n).padStart(2, "0");
  const month = (d) => d.toLocaleString("en", { month: "short" });

  // isLocal reports whether the reader chose the browser's zone. A browser that stores no data throws an
  // error.
  function isLocal() {
    try {
      return localStorage.getItem(storedZone) === "local";
    } catch {
      return false;
    }
  }

  // timeText formats a time in the browser's zone, in the form that the server uses for UTC.
  function timeText(iso, form, now) {
    const d = new Date(iso), clock = two(d.getHours()) + ":" + two(d.getMinutes()), day = d.getDate() + " " + month(d);
    switch (form) {
      case "minute": return clock;
      case "day": return day;
      case "step": return day + " " + clock;
    }
    if (d.toDateString() === now.toDateString()) return clock + ":" + two(d.getSeconds());
    if (d.getFullYear() === now.getFullYear()) return day + " " + clock + ":" + two(d.getSeconds());
    return day + " " + d.getFullYear() + " " + clock;
  }

  // localize changes all times of a page from the server to the browser's zone, if the reader chose this
  // zone.
  function localize(page) {
    if (!isLocal()) return page;
    const now = new Date(page.querySelector("#moment time").dateTime);
    for (const t of page.querySelectorAll("time[datetime]")) {
      const text = [...t.childNodes].find((n) => n.nodeType === Node.TEXT_NODE && n.nodeValue.trim());
      const at = new Date(t.dateTime);
      if (text && at.getUTCFullYear() < 9000) text.nodeValue = timeText(t.dateTime, t.dataset.form, now);
    }
    for (const hit of page.querySelectorAll("rect[data-at] > title")) {
      const lines = hit.textContent.split("\n");
      lines[0] = timeText(hit.parentNode.dataset.at, "step", now);
      hit.textContent = lines.join("\n");
    }
    for (const label of page.querySelectorAll(".zone")) label.textContent = "local";
    page.querySelector("#zone").textContent = "Times are " + Intl.DateTimeFormat().resolvedOptions().timeZone + ".";
    for (const b of page.querySelectorAll("[data-zone]")) b.setAttribute("aria-pressed", String(b.dataset.zone === "local"));
    return page;
  }

  // localField returns a time in the browser's zone as the value of an input.
  function localField(d) {
    return d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + "T" + two(d.getHours()) + ":" + two(d.getMinutes());
  }

  // fieldTime returns the time that was entered into an input.
  const fieldTime = (field) => new Date(field.value + (isLocal() ? "" : "Z"));

  document.addEventListener("click", (e) => {
    const choice = e.target.closest && e.target.closest("[data-zone]");
    if (!choice) return;
    try {
      localStorage.setItem(storedZone, choice.dataset.zone);
      location.reload();
    } catch {
      toast("This browser keeps no settings for this page.");
    }
  });

  localize(document);
  if (isLocal()) {
    for (const f of document.querySelectorAll("input[type=datetime-local]")) if (f.value) f.value = localField(new Date(f.value + "Z"));
    // A form that the browser sends by itself sends times in UTC.
    document.addEventListener("formdata", (e) => {
      for (const f of e.target.elements) if (f.type === "datetime-local" && f.name && f.value) e.formData.set(f.name, fieldTime(f).toISOString().slice(0, 16));
    });
  }

  // inUse reports whether the reader has selected text in a region, or types in it.
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

  // refresh reads the page again. If fresh is true, the operator has just changed something: the server
  // then uses no cached data, and regions in use are replaced, too.
  async function refresh(fresh) {
    try {
      const address = new URL(location.href), versioned = document.querySelector("[data-version]");
      if (versioned) address.searchParams.set("known", versioned.dataset.version);
      const answer = await fetch(address, { cache: fresh ? "reload" : "default", signal: AbortSignal.timeout(15000) });
      if (!answer.ok) return say("Not updated: " + (unwell[answer.status] || "the server answers " + answer.status) + ".", true);
      replace(localize(new DOMParser().parseFromString(await answer.text(), "text/html")), fresh);
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
        timer = -1; // no further turn while the page is hidden
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

  // --- Changes by the operator.

  function toast(text) {
    const t = document.createElement("p");
    t.className = "toast";
    t.textContent = text;
    byId("toasts").append(t);
    setTimeout(() => t.remove(), 8000);
  }

  // The page deletes a key that was not used for keyIdle. Otherwise anybody with a tab that was left open,
  // duplicated or restored could still change things.
  const keyIdle = 15 * 60 * 1000;

  function keepKey(name, key) {
    sessionStorage.setItem(storedKey(name), JSON.stringify({ key, usedAt: Date.now() }));
  }

  // keptKey returns the key of a function, or null.
  function keptKey(name) {
    let kept = null;
    try {
      kept = JSON.parse(sessionStorage.getItem(storedKey(name)));
    } catch { /* this script did not write it: it is removed below */ }
    const age = kept ? Date.now() - kept.usedAt : NaN;
    if (age >= 0 && age < keyIdle) return kept.key;
    sessionStorage.removeItem(storedKey(name));
    return null;
  }
  setInterval(() => ["write", "schedules"].forEach(keptKey), 60 * 1000);

  // askKey returns the key that the operator enters, or "".
  function askKey(name, wrong) {
    const dialog = byId("key"), field = byId("key-value"), text = byId("key-wrong");
    text.hidden = !wrong;
    text.textContent = wrong ? "This key is not accepted." : "";
    field.value = "";
    byId("key-function").textContent = name;
    return new Promise((done) => {
      dialog.addEventListener("close", () => {
        const key = dialog.returnValue === "use" ? field.value.trim() : "";
        field.value = "";
        if (key) keepKey(name, key);
        done(key);
      }, { once: true });
      dialog.returnValue = "";
      dialog.showModal();
      field.focus();
    });
  }

  // question returns the question that the operator has to answer before a form is sent: the question of
  // a ticked box, or else of the form. Nobody can take a wrong change back from the CMS. "{what}" in a
  // question stands for the chosen lanes or key.
  function question(form) {
    const box = [...form.elements].find((f) => f.checked && f.dataset.ask);
    const text = box ? box.dataset.ask : form.dataset.ask || "";
    const what = form.elements.what ? form.elements.what.value : "";
    const one = what && what !== "all" ? what + " " + form.elements[what].value : "all lanes";
    return text.replace("{what}", () => one);
  }

  // sure reports whether the operator answers a question with yes.
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

  // send sends a request, and asks the operator for the key if the server refuses the request without
  // it. It returns the answer, or null if the operator entered no key.
  async function send(form, address, method, body, type) {
    const name = form.dataset.function || "write";
    for (let tries = 0; ; tries++) {
      const headers = {}, key = keptKey(name);
      if (key) {
        keepKey(name, key);
        headers["x-functions-key"] = key;
      }
      if (document.body.dataset.proof) headers["Weir-Signed-In"] = document.body.dataset.proof;
      if (type) headers["Content-Type"] = type;
      if (method === "PUT" && "new" in form.dataset) headers["If-None-Match"] = "*"; // a new schedule never replaces another one
      const answer = await fetch(address, { method, headers, body, cache: "no-store" });
      if (answer.status !== 401 && answer.status !== 403) return answer;
      sessionStorage.removeItem(storedKey(name));
      if (!(await askKey(name, tries > 0 || key !== null))) return null;
    }
  }

  function valueOf(field) {
    if (field.type === "checkbox") return field.checked ? true : undefined;
    const text = field.value;
    if (text === "" && !("keep" in field.dataset)) return undefined;
    if (field.type === "number" || field.dataset.type === "number") return Number(text);
    if (field.type === "datetime-local") return fieldTime(field).toISOString();
    return text;
  }

  function fields(form) {
    return [...form.elements].filter((f) => f.name && f.type !== "submit" && f.type !== "radio" && !("inPath" in f.dataset));
  }

  // json returns the body from the fields. A field "a.b" becomes the field b of an object a.
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

  // perform sends a form to its address, or to the address of the button. A field can be part of the
  // address.
  async function perform(form, dry, button) {
    const { action, send: way = "", method = "POST" } = { ...form.dataset, ...(button ? button.dataset : {}) };
    const address = action.replace(/%7B(\w+)%7D/gi, (_, name) => encodeURIComponent(form.elements[name].value));
    if (way === "json") return send(form, address, method, json(form, dry ? { dryRun: true } : {}), "application/json");
    if (way === "text") return send(form, query(form, address), method, form.elements.body.value, "application/xml; charset=utf-8");
    return send(form, query(form, address), method);
  }

  // --- Changes of several messages. Each chosen message is changed by a request of its own.

  // chosen returns the ticked boxes of the messages that the form's action can change.
  function chosen(form) {
    const stages = form.dataset.each.split(" ");
    return [...document.querySelectorAll("input[data-stage]:checked")].filter((box) => stages.includes(box.dataset.stage));
  }

  function countChosen() {
    for (const form of document.querySelectorAll("form[data-each]")) {
      const n = chosen(form).length, button = form.querySelector("[data-text]");
      button.disabled = !n;
      button.textContent = button.dataset.text.replace("{n}", n);
    }
  }

  // performEach sends the form for each chosen message. A message that is refused stays chosen.
  async function performEach(form, button) {
    const refused = [];
    let changed = 0;
    try {
      for (const box of chosen(form)) {
        form.elements.message.value = box.value;
        const answer = await perform(form, false, button);
        if (answer === null) break;
        if (answer.ok) {
          changed++;
          box.checked = false;
        } else refused.push(box.value + ": " + trouble(answer.status, await read(answer)));
      }
    } finally {
      countChosen();
      show(form, [few(changed, "request is", "requests are") + " accepted.", ...refused].join("\n"), refused.length > 0);
    }
    await refresh(true);
    countChosen();
  }

  document.addEventListener("change", (e) => {
    if ("chooseAll" in e.target.dataset) {
      for (const box of document.querySelectorAll("input[data-stage]")) box.checked = e.target.checked;
    }
    countChosen();
  });
  countChosen();

  // showRevealed shows a body with its redacted values, until the operator leaves the page.
  async function showRevealed(form, answer) {
    const text = await answer.text(), box = form.querySelector(".code-box");
    box.querySelector("pre").textContent = text;
    box.hidden = false;
    form.querySelector(".buttons").hidden = true;
    show(form, "", false);
    box.focus();
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

  // counted shows the result of a dry run, and enables the button for the replay. a.count includes the
  // messages that would be refused.
  function counted(form, a) {
    const left = a.count - a.refused, go = form.querySelector("[data-after-dry]");
    let text = (a.complete === false ? "At least " : "") + few(a.count, "message", "messages") + " of " + few(a.keys, "key", "keys") + (a.count === 1 ? " matches." : " match.");
    if (a.refused) text += "\n" + a.refused + " of them would be refused: a later one of the key was delivered.";
    if (a.missingContract) text += "\n" + a.missingContract + " of them would wait, because weir.yaml lacks their contract.";
    if (!left && a.refused) text += "\nNone is left to replay. Tick Force to replay them anyway.";
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

  // previewed shows the next runs of a schedule that is not stored.
  function previewed(form, a) {
    const lines = a.runs.map((r) => r.dueAt.replace("T", " ") + " = " + r.localTime.replace("T", " ") + " " + r.offset);
    for (const c of [...a.skipped, ...a.doubled]) lines.push(c.localTime.replace("T", " ") + ": " + c.note);
    show(form, lines.length ? lines.join("\n") : "There are no further runs.", false);
  }

  // done shows the result of a change. After a 202 it shows only that the change is requested, because
  // the stage in such an answer is the stage before the change.
  async function done(form, status, answer) {
    if (form.dataset.goto && answer.id) {
      const u = new URL(form.dataset.goto, location.href);
      u.pathname += encodeURIComponent(answer.id);
      location.assign(u);
      return;
    }
    if (form.dataset.gotoName && answer.name) {
      const u = new URL(form.dataset.gotoName, location.href);
      u.searchParams.set("name", answer.name);
      location.assign(u);
      return;
    }
    if (form.dataset.then) {
      location.assign(form.dataset.then);
      return;
    }
    show(form, "", false);
    const text = (status === 202 && form.dataset.asked) || form.dataset.done || "Done.";
    toast(text.replace(/\{(\w+)\}/g, (_, name) => answer[name] ?? "–"));
    await refresh(true);
    if (status === 202) setTimeout(() => refresh(true), 1000); // the holder answers the request within about a second
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
      if (form.dataset.each) {
        await performEach(form, e.submitter);
        return;
      }
      const answer = await perform(form, dry, e.submitter);
      if (answer === null) return;
      if (answer.ok && "reveals" in form.dataset) {
        await showRevealed(form, answer);
        return;
      }
      const body = await read(answer);
      if (!answer.ok) show(form, trouble(answer.status, body), true);
      else if (dry) counted(form, body);
      else if (e.submitter && "preview" in e.submitter.dataset) previewed(form, body);
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
    if (radio && e.target !== radio) radio.checked = true; // an operator who fills in the field chooses it
  });

  // The script loads the body only when the operator opens the editor, because most messages are never
  // edited.
  document.addEventListener("toggle", async (e) => {
    const area = e.target.open && e.target.querySelector("textarea[data-load]");
    if (!area || "loaded" in area.dataset) return;
    area.readOnly = true; // the loaded body would overwrite text that was typed before
    try {
      let answer = await fetch(area.dataset.load);
      // Weir refuses an edited body with marks in place of its values, and answers 409 if it cannot find the values.
      if (answer.headers.has("weir-redacted") || answer.status === 409) answer = await send(area.form, area.dataset.reveal, "POST");
      if (answer === null) {
        show(area.form, "Editing this body needs the key of write, because it has redacted values. Close this and open it again.", true);
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      area.value = await answer.text();
      area.dataset.loaded = "";
      area.readOnly = false;
    } catch (err) {
      show(area.form, "The body could not be read. Close this and open it again.", true);
    }
  }, true);
})();
