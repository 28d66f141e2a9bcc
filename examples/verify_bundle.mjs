#!/usr/bin/env node
// Checks an audit bundle, written in JavaScript from docs/ledger-format.md alone (sections 1, 4, 5 and 6):
// a second opinion beside verify.py, and a start for a verifier of your own.
//
//     node verify_bundle.mjs audit-X.zip VKEY [PINNED-CHECKPOINT]
//
// Ends with 0 PASS, 1 FAIL, 3 INCOMPLETE, 2 wrong use. It reads the whole file into memory, knows no window and
// takes no consistency proof: where the checkpoint that you kept is not the bundle's, it says INCOMPLETE.

import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const NAMES = [
  "README.txt", "manifest.json", "checkpoint.txt", "leaves.txt",
  "events.jsonl", "report.json", "results.jsonl", "report.html",
];
const README = "ff2cca8ca188b85eeedf503e44fa8703034c5b0b81b68e0efb9367ac1eda37fd";
const LEDGER = "$ledger";
const MEMBERS = "content,encoding,envelope,payload,salt";
const ENVELOPE =
  "content_commitment,event_id,ledger,payload_sha256,position,recorded_at,request_id,request_version,run_id,run_version,schema,type,v";

class Fault extends Error {}
const insist = (holds, what) => {
  if (!holds) throw new Fault(what);
};

// --- bytes ------------------------------------------------------------------------------------------

const sha256 = (...parts) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const hex = (data) => data.toString("hex");
const leafHash = (data) => sha256(Buffer.of(0), data);
const nodeHash = (left, right) => sha256(Buffer.of(1), left, right);

function strictBase64(text) {
  const data = Buffer.from(text, "base64");
  insist(data.toString("base64") === text, "base64 of another form than its bytes encode to");
  return data;
}

function utf8(data, what) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Fault(`${what}: not UTF-8`);
  }
}

// --- canonical JSON (RFC 8785): JavaScript's own strings and numbers, its own order of names --------------

function canonical(value) {
  if (typeof value === "number") insist(Number.isSafeInteger(value), "a number that may not stand here");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(",")}}`;
}

function parse(text, what) {
  try {
    const value = JSON.parse(text);
    insist(canonical(value) === text, "not canonical");
    return value;
  } catch (error) {
    throw new Fault(`${what}: ${error instanceof Fault ? error.message : "no JSON"}`);
  }
}

// --- keys and checkpoints (section 4) ------------------------------------------------------------------

function readKey(vkey) {
  const [name, id] = vkey.split("+", 2);
  const data = strictBase64(vkey.slice(name.length + (id ?? "").length + 2));
  insist(data.length === 33 && data[0] === 1, "not the vkey of an Ed25519 key");
  insist(hex(sha256(name, "\n", data).subarray(0, 4)) === id, "the vkey's key id is another key's");
  const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), data.subarray(1)]);
  return { name, id, key: createPublicKey({ key: spki, format: "der", type: "spki" }) };
}

function openCheckpoint(data, key) {
  const note = utf8(data, "checkpoint");
  insist(data.length <= 1_000_000 && !/[\0-\x09\x0b-\x1f]/.test(note), "checkpoint: too large, or a control character");
  const blank = note.lastIndexOf("\n\n");
  insist(blank >= 0 && note.endsWith("\n"), "checkpoint: no blank line, or no newline at its end");
  const text = note.slice(0, blank + 1);
  const lines = note.slice(blank + 2, -1).split("\n");
  insist(lines.length <= 100, "checkpoint: more than 100 signatures");
  const seen = new Set();
  let good = false;
  for (const line of lines) {
    const [dash, name, encoded, more] = line.split(" ");
    insist(dash === "\u2014" && name && encoded && more === undefined, "checkpoint: no signature line");
    const raw = strictBase64(encoded);
    const id = hex(raw.subarray(0, 4));
    insist(raw.length > 4 && !seen.has(`${name} ${id}`), "checkpoint: a signature too short, or two by one key");
    seen.add(`${name} ${id}`);
    if (name !== key.name || id !== key.id) continue;
    insist(raw.length === 68 && verify(null, Buffer.from(text), key.key, raw.subarray(4)), "checkpoint: signature bad");
    good = true;
  }
  insist(good, "checkpoint: not signed by the key that was given");
  const [origin, size, root, end] = text.split("\n");
  insist(text.split("\n").length === 4 && end === "" && /^[1-9][0-9]{0,15}$/.test(size), "checkpoint: not its three lines");
  insist(origin === key.name, "checkpoint: of another ledger");
  const hash = strictBase64(root);
  insist(hash.length === 32, "checkpoint: a root has 32 bytes");
  return { origin, size: Number(size), root: hash };
}

// --- the tree (section 1) -------------------------------------------------------------------------------

function rootOf(leaves) {
  const frontier = [];
  for (const leaf of leaves) {
    frontier.push([0, leaf]);
    while (frontier.length > 1 && frontier.at(-1)[0] === frontier.at(-2)[0]) {
      const [height, right] = frontier.pop();
      const [, left] = frontier.pop();
      frontier.push([height + 1, nodeHash(left, right)]);
    }
  }
  return frontier.map(([, hash]) => hash).reduceRight((right, left) => nodeHash(left, right));
}

// --- the zip (section 6) --------------------------------------------------------------------------------

const CRC = Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n >>> 0;
});
const crc32 = (data) => (data.reduce((crc, byte) => (crc >>> 8) ^ CRC[(crc ^ byte) & 255], -1) ^ -1) >>> 0;

/** Little-endian numbers: pairs of a width in bytes and a value. */
const numbers = (...pairs) =>
  Buffer.concat(
    pairs.map(([width, value]) => {
      const made = Buffer.alloc(width);
      made.writeUIntLE(value, 0, width);
      return made;
    }),
  );

function takeApart(file) {
  const entries = new Map();
  const bodies = [];
  const directory = [];
  let at = 0;
  for (const name of NAMES) {
    insist(file.length >= at + 30 + name.length, `zip: ends before ${name}`);
    const size = file.readUInt32LE(at + 18);
    const start = at + 30 + name.length;
    insist(file.length >= start + size, `zip: ends within ${name}`);
    const data = file.subarray(start, start + size);
    const sums = [[4, crc32(data)], [4, size], [4, size], [2, name.length]];
    const common = [[2, 20], [2, 0], [2, 0], [2, 0], [2, 0x21], ...sums, [2, 0]];
    bodies.push(Buffer.from("504b0304", "hex"), numbers(...common), Buffer.from(name), data);
    const more = [[2, 0], [2, 0], [2, 0], [4, 0x81a40000], [4, at]];
    directory.push(Buffer.from("504b0102", "hex"), numbers([2, 0x314], ...common, ...more), Buffer.from(name));
    entries.set(name, data);
    at = start + size;
  }
  const records = Buffer.concat(directory);
  const end = numbers([2, 0], [2, 0], [2, 8], [2, 8], [4, records.length], [4, at], [2, 0]);
  const made = Buffer.concat([...bodies, records, Buffer.from("504b0506", "hex"), end]);
  insist(made.equals(file), "zip: not, byte for byte, the one that its entries make");
  return entries;
}

function checkManifest(entries, checkpoint) {
  insist(hex(sha256(entries.get("README.txt"))) === README, "README.txt: not the text of version 1");
  const text = utf8(entries.get("manifest.json"), "manifest.json");
  const { run_id } = parse(text.replace(/\n$/, ""), "manifest.json");
  insist(/^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$/.test(run_id), "manifest.json: names no run");
  const others = NAMES.filter((name) => name !== "manifest.json");
  const files = Object.fromEntries(others.map((name) => [name, hex(sha256(entries.get(name)))]));
  const made = { bundle: 1, files, ledger: checkpoint.origin, run_id, size: checkpoint.size };
  insist(`${canonical(made)}\n` === text, "manifest.json: not the one that the entries make");
  return run_id;
}

// --- the events -------------------------------------------------------------------------------------------

function checkEvent(line, leaves, origin) {
  const event = parse(line, "event");
  const { content, encoding, envelope, payload, salt } = event;
  insist(Object.keys(event).join() === MEMBERS && Object.keys(envelope).join() === ENVELOPE, "members missing, or others");
  insist(envelope.v === 1 && envelope.ledger === origin, "of another version or ledger");
  insist(leaves[envelope.position - 1]?.equals(leafHash(canonical(envelope))), "its envelope is not the leaf in its place");
  insist(hex(sha256(canonical(payload))) === envelope.payload_sha256, "its payload was edited");
  if (content === null) {
    insist(encoding === null && salt === null, "an encoding or a salt without content");
    return event;
  }
  insist(["utf-8", "base64"].includes(encoding) && /^[0-9a-f]{64}$/.test(salt), "no encoding or salt");
  const data = encoding === "utf-8" ? Buffer.from(content) : strictBase64(content);
  const commitment = sha256(Buffer.of(2), Buffer.from(salt, "hex"), data);
  insist(hex(commitment) === envelope.content_commitment, "its content was edited");
  return event;
}

function checkEvents(text, leaves, origin, runId) {
  insist(text.endsWith("\n"), "events.jsonl: no newline at its end");
  const versions = new Map([[runId, 0], [LEDGER, 0]]);
  const requests = new Map();
  const contents = new Map(); // position -> "present", "missing" or "erased"
  const events = [];
  let before = { position: 0, recorded_at: "" };
  for (const line of text.slice(0, -1).split("\n")) {
    const event = checkEvent(line, leaves, origin);
    const { envelope, payload } = event;
    const { position, run_id, request_id, type } = envelope;
    insist(position > before.position && envelope.recorded_at >= before.recorded_at, "positions or times go back");
    insist((type === "LedgerCreated") === (position === 1) && (before.position > 0 || position === 1), "no beginning");
    insist(versions.has(run_id) && envelope.run_version === versions.get(run_id) + 1, "run_version: a gap, or another run");
    versions.set(run_id, envelope.run_version);
    insist((request_id === null) === (envelope.request_version === null), "request_version without request_id");
    if (request_id !== null) {
      insist(envelope.request_version === (requests.get(request_id) ?? 0) + 1, "request_version: a gap");
      requests.set(request_id, envelope.request_version);
    }
    if (envelope.content_commitment !== null) contents.set(position, event.content === null ? "missing" : "present");
    if (type === "ContentRedacted" && run_id === LEDGER) {
      for (const erased of payload.positions) {
        insist(erased < position && contents.get(erased) !== "present", "content that was erased is there");
        if (contents.has(erased)) contents.set(erased, "erased");
      }
    }
    before = envelope;
    events.push(event);
  }
  for (const [position, state] of contents) insist(state !== "missing", `position ${position}: erased without authority`);
  return events;
}

// --- the report ---------------------------------------------------------------------------------------------

const TERMINAL = ["RunCompleted", "RunBlocked", "RunAbandoned"];
const AFTER = ["ReportIssued", "GradesRecorded"];

function consumed(events, runId) {
  const ofRun = events.filter(({ envelope }) => envelope.run_id === runId && !AFTER.includes(envelope.type));
  const start = ofRun.findLastIndex(({ envelope }) => envelope.type === "RunStarted");
  insist(start >= 0, "events.jsonl: the run has no RunStarted");
  const since = ofRun.slice(start);
  const end = since.findIndex(({ envelope }) => TERMINAL.includes(envelope.type));
  return { ended: end >= 0, taken: end >= 0 ? since.slice(0, end + 1) : since };
}

function expectedReport(runId, ended, taken) {
  const of = (type) => taken.filter(({ envelope }) => envelope.type === type);
  const [{ payload: run }] = taken;
  const last = taken.at(-1);
  const stages = new Map(of("RequestAccepted").map(({ envelope }) => [envelope.request_id, null]));
  for (const event of taken) {
    const id = event.envelope.request_id;
    if (["OutputAccepted", "FallbackApplied"].includes(event.envelope.type) && stages.get(id) === null) stages.set(id, event);
  }
  const called = new Set(of("ModelCallStarted").map(({ envelope }) => envelope.request_id));
  const retried = new Set(of("ModelCallStarted").filter(({ payload }) => payload.turn === 2).map((e) => e.envelope.request_id));
  const done = [...stages.values()].filter((event) => event !== null);
  const accepted = done.filter(({ envelope }) => envelope.type === "OutputAccepted");
  const fallback = done.filter(({ envelope }) => envelope.type === "FallbackApplied");
  const open = [...stages].filter(([, event]) => event === null).map(([id]) => id);
  const counts = {
    accepted_first: accepted.filter(({ payload }) => payload.turn === 1).length,
    accepted_after_retry: accepted.filter(({ payload }) => payload.turn === 2).length,
    fallback_records: fallback.length,
    leak_rejected: of("LeakRejected").length,
    rejected: of("RequestRejected").length,
    not_started: open.filter((id) => !called.has(id)).length,
    incomplete: open.filter((id) => called.has(id)).length,
  };
  const requests = Object.values(counts).reduce((sum, n) => sum + n);
  const names = { RunBlocked: "blocked", RunAbandoned: "abandoned" };
  const outcome = ended ? (names[last.envelope.type] ?? last.payload.outcome) : "incomplete";
  if (last.payload.counts) insist(canonical(last.payload.counts) === canonical({ requests, ...counts }), "counts of the run's end");
  const errors = {};
  for (const { payload } of fallback) errors[payload.code] = (errors[payload.code] ?? 0) + 1;
  const level = (risk_level) => {
    const at = accepted.filter(({ payload }) => payload.risk_level === risk_level).map(({ payload }) => payload);
    return {
      total: at.length,
      blocked_by_policy: at.filter((p) => p.blocked_by_policy).length,
      requires_human_approval: at.filter((p) => p.requires_human_approval).length,
      neither: at.filter((p) => !p.blocked_by_policy && !p.requires_human_approval).length,
    };
  };
  const levels = ["low", "medium", "high", "critical"];
  const { candidate_id, candidate_variant_id, prompt_profile, model, endpoint } = run;
  const members = {
    ...{ run_id: runId, candidate_id, candidate_variant_id, prompt_profile, model, endpoint, outcome, requests, ...counts },
    results: done.length,
    external_error_records: fallback.length,
    retry_used_records: [...stages].filter(([id, event]) => event !== null && retried.has(id)).length,
    unreadable: 0,
    valid: outcome === "completed" && requests > 0 && accepted.length === requests,
    errors,
    decisions: { by_risk_level: Object.fromEntries(levels.map((risk) => [risk, level(risk)])) },
  };
  const failed = of("ModelCallFailed");
  const calls = {
    ...{ started: of("ModelCallStarted").length, answered: of("ModelCalled").length, failed: failed.length },
    outcome_unknown: failed.filter(({ payload }) => payload.outcome_unknown).length,
  };
  return { members, calls };
}

function checkReport(entries, events, runId, leaves, unproven) {
  const { ended, taken } = consumed(events, runId);
  const position = taken.at(-1).envelope.position;
  const issued = events.filter(({ envelope }) => envelope.type === "ReportIssued" && envelope.run_id === runId);
  const kinds = { "report.json": ["report", "json"], "results.jsonl": ["results", "jsonl"], "report.html": ["report", "html"] };
  for (const [name, [kind, format]] of Object.entries(kinds)) {
    const said = { kind, format, sha256: hex(sha256(entries.get(name))), as_of_position: position };
    const found = issued.some(({ payload }) => Object.entries(said).every(([member, value]) => payload[member] === value));
    insist(found, `${name}: no ReportIssued event names these bytes`);
  }
  const text = utf8(entries.get("report.json"), "report.json");
  const report = parse(text.replace(/\n$/, ""), "report.json");
  const root = hex(rootOf(leaves.slice(0, position)));
  insist(text.endsWith("\n") && canonical(report.as_of) === canonical({ position, root, size: position }), "report.json: as_of");
  if (!ended) unproven.push("the run has no terminal event");
  if (taken.some(({ envelope }) => envelope.schema !== 1)) {
    unproven.push("that the report's counts follow from the events: they are of a later schema");
    return;
  }
  const { members, calls } = expectedReport(runId, ended, taken);
  for (const [name, value] of Object.entries(members)) {
    insist(name in report && canonical(report[name]) === canonical(value), `report.json: ${name} does not follow from the events`);
  }
  const lines = utf8(entries.get("results.jsonl"), "results.jsonl").split("\n");
  insist(lines.pop() === "" && lines.length === members.results, "results.jsonl: not as many results as the events have");
  for (const [name, value] of Object.entries(calls)) insist(report.calls?.[name] === value, `report.json: calls.${name}`);
}

// --- the verdict ----------------------------------------------------------------------------------------------

function check(file, key, pinned) {
  const unproven = [];
  const entries = takeApart(file);
  const checkpoint = openCheckpoint(entries.get("checkpoint.txt"), key);
  const runId = checkManifest(entries, checkpoint);
  const listed = utf8(entries.get("leaves.txt"), "leaves.txt");
  insist(listed.length === 65 * checkpoint.size && /^([0-9a-f]{64}\n)*$/.test(listed), "leaves.txt: not a hash a line");
  const leaves = listed.slice(0, -1).split("\n").map((line) => Buffer.from(line, "hex"));
  insist(rootOf(leaves).equals(checkpoint.root), "leaves.txt: not the leaves under the signed root");
  const events = checkEvents(utf8(entries.get("events.jsonl"), "events.jsonl"), leaves, checkpoint.origin, runId);
  checkReport(entries, events, runId, leaves, unproven);
  if (pinned === null) {
    unproven.push("that others were shown this history: no checkpoint that you kept was given");
  } else if (pinned.size > checkpoint.size) {
    unproven.push("that the ledger went on to your checkpoint: that takes a consistency proof");
  } else {
    insist(rootOf(leaves.slice(0, pinned.size)).equals(pinned.root), "forked: your checkpoint is of another history");
    if (pinned.size < checkpoint.size) unproven.push(`events after ${pinned.size}: your checkpoint does not cover them`);
  }
  return { about: `run ${runId} of ${checkpoint.origin}, ${checkpoint.size} events`, unproven };
}

/** What the caller brings; where it cannot be used, that is no verdict. */
function brought(what, take) {
  try {
    return take();
  } catch {
    console.error(`verify_bundle.mjs: ${what}`);
    console.error("usage: node verify_bundle.mjs audit-X.zip VKEY [PINNED-CHECKPOINT]");
    process.exit(2);
  }
}

const words = process.argv.slice(2);
const known = () => insist([2, 3].includes(words.length) && !words.some((word) => word.startsWith("-")), "");
brought("it takes two or three arguments, and no options", known);
const [path, vkey, kept] = words;
const key = brought("not the vkey of an Ed25519 key", () => readKey(vkey));
const file = brought("the bundle cannot be read", () => readFileSync(path));
const note = brought("the checkpoint cannot be read", () => (kept === undefined ? null : readFileSync(kept)));
try {
  const pinned = note === null ? null : openCheckpoint(note, key);
  const { about, unproven } = check(file, key, pinned);
  console.log(`${unproven.length > 0 ? "INCOMPLETE" : "PASS"}  ${about}`);
  for (const line of unproven) console.log(`  not proven: ${line}`);
  process.exitCode = unproven.length > 0 ? 3 : 0;
} catch (error) {
  console.log(`FAIL  ${error instanceof Fault ? JSON.stringify(error.message) : "it could not be understood"}`);
  process.exitCode = 1;
}
