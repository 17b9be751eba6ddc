// Refusals, CRLs, certificates and blocks.

import { fold, h, none, show, state, table } from "./dom.js";
import { sameRecords } from "./fleet.js";
import { ago, count, duration, now, plural, seconds, time, until } from "./format.js";

const REFUSED_CLIENTS_SHOWN = 20;
const CERTIFICATES_SHOWN = 30;
const DAY = 86400;
const SOON_DAYS = 14;

let firstCounts = null;

/** Certificates that were refused, and requests that the proxy answered with an error. */
export function showRefusals({ refusals, certificate_refusals: certificates }) {
  const kinds = [["Refused certificates", "certificate", certificates], ["Requests that the proxy answered with an error", "request", refusals]];
  // The counts of a proxy that has started again begin at 0.
  const isSmaller = (kind, counts) => Object.entries(firstCounts[kind]).some(([reason, number]) => (counts[reason] ?? 0) < number);
  if (firstCounts && kinds.some(([, kind, counts]) => isSmaller(kind, counts))) firstCounts = { certificate: {}, request: {} };
  firstCounts ??= { certificate: certificates, request: refusals };
  const total = (counts) => Object.values(counts).reduce((sum, number) => sum + number, 0);
  fold("refusals", true, `${plural(total(certificates), "refused certificate")} and ${plural(total(refusals), "error")} since the start`);
  show("refusals-reasons", kinds.map(([caption, kind, counts]) => {
    const seen = Object.entries(counts).filter(([, number]) => number > 0).sort(([, a], [, b]) => b - a);
    return seen.length === 0 ? none(`${caption}: none since the start.`) : table(`${caption}, by reason`,
      [{ name: "Reason" }, { name: "Since this page opened", class: "number" }, { name: "Since the start", class: "number" }],
      seen.map(([reason, number]) => ({
        cells: [h("code", {}, reason), count(number - (firstCounts[kind][reason] ?? 0)), count(number)],
        attributes: { "data-reason": reason },
      })));
  }));
}

export function showRefusedClients({ refusals }) {
  if (refusals.length === 0) {
    show("refusals-clients", none("No client was refused since the start."));
    return;
  }
  show("refusals-clients", table(
    refusals.length > REFUSED_CLIENTS_SHOWN ? `The last ${REFUSED_CLIENTS_SHOWN} of ${refusals.length} refused clients` : "Refused clients",
    [{ name: "Client" }, { name: "Reason" }, { name: "Times", class: "number" }, { name: "Last" }],
    refusals.slice(0, REFUSED_CLIENTS_SHOWN).map((refusal) => ({
      cells: [
        [refusal.certname ?? "no name", refusal.verified || !refusal.certname ? null : " (unverified)", h("span", { class: "note" }, `from ${refusal.client}`)],
        h("code", {}, refusal.reason),
        count(refusal.count),
        ago(refusal.last_at),
      ],
    }))));
}

/** CRLs, and certificates that expire soon. */
export function showTrust(status, expiring) {
  const crls = showCrls(status.trust);
  const certificates = showCertificates(status, expiring);
  const { crls: active, cas } = status.trust;
  fold("trust", crls && certificates, crls && certificates ? `${plural(active.length, "CRL")} and ${plural(cas.length, "CA")}, all valid` : "see what is marked");
}

/** Whether all is well. */
function showCrls(trust) {
  const rows = trust.crls.map((crl) => ({
    cells: [
      crl.issuer,
      crl.number,
      crl.this_update ? duration(now() - seconds(crl.this_update)) : "–",
      crl.expired ? state("bad", "expired") : crl.next_update ? until(crl.next_update) : "–",
      count(crl.entries),
    ],
    attributes: { "data-crl": crl.issuer },
  }));
  const missing = [
    ...trust.crl_missing.map((issuer) => [state("bad", "refused"), ` ${issuer}: no CRL`]),
    ...trust.unchecked.map((issuer) => [state("warn", "unchecked"), ` ${issuer}: no CRL`]),
  ];
  const fetch = trust.fetch;
  show("crls",
    rows.length === 0 ? none("No CRL is active.") : table("Active CRLs",
      [{ name: "Issuer" }, { name: "Number", class: "number" }, { name: "Age", class: "number" }, { name: "Next update" }, { name: "Revoked", class: "number" }], rows),
    missing.map((line) => h("p", {}, line)),
    h("p", { class: "note" }, fetch === null ? "The proxy does not fetch CRLs." :
      fetch.failing ? `Fetching fails since ${time(fetch.failing.since)}: ${fetch.failing.why}` :
      fetch.last_answer ? `Last answer of the CA ${ago(fetch.last_answer)}, from ${fetch.member ?? "–"}.` : "The CA has not answered yet."));
  return missing.length === 0 && !fetch?.failing && !trust.crls.some((crl) => crl.expired);
}

/** Whether no certificate of the proxy and no CA expires soon. */
function showCertificates(status, expiring) {
  const left = (at) => seconds(at) - now();
  const shown = (at) => {
    const days = left(at) / DAY;
    return [state(days < 0 ? "bad" : days < SOON_DAYS ? "warn" : "good", days < 0 ? "expired" : until(at)), h("span", { class: "note" }, time(at))];
  };
  const own = status.certificates.map((certificate) => ({ name: certificate.subject, use: `${certificate.role} ${certificate.name}`, at: certificate.not_after }));
  const cas = status.trust.cas.map((ca) => ({ name: ca.subject, use: "CA", at: ca.not_after }));
  const agents = expiring.agents.map((agent) => ({ name: agent.certname ?? agent.serial, use: "agent", at: agent.not_after }));
  const soon = agents.sort((a, b) => left(a.at) - left(b.at)).slice(0, CERTIFICATES_SHOWN);
  show("certificates",
    table("Certificates of the proxy, CAs, and agents that expire within 60 days",
      [{ name: "Name" }, { name: "Use" }, { name: "Expires" }],
      [...own, ...cas, ...soon].map((row) => ({ cells: [row.name, row.use, shown(row.at)], attributes: { "data-certificate": row.name } }))),
    agents.length > CERTIFICATES_SHOWN ? h("p", { class: "note" }, `${agents.length - CERTIFICATES_SHOWN} further agents: run \`proscenium certificates\`.`.replaceAll("`", "")) :
      agents.length === 0 ? h("p", { class: "note" }, "No certificate of an agent that was seen expires within 60 days.") : null);
  return [...own, ...cas].every((row) => left(row.at) >= SOON_DAYS * DAY);
}

export function showBlocks(blocks, fleet, actions) {
  fold("blocks", true, blocks.length === 0 ? "none" : `${plural(blocks.length, "block")}, the last for ${subject(blocks.at(-1).blocked)}`);
  if (blocks.length === 0) {
    show("blocks-body", none("No certificate is blocked."));
    return;
  }
  const columns = [{ name: "Blocked" }, { name: "Reason" }, { name: "By" }, { name: "Since" }, { name: "Until" }];
  show("blocks-body", table(`Active blocks, the oldest first${sameRecords(fleet)}`, actions ? [...columns, { name: "Action" }] : columns, blocks.map((block) => ({
    cells: [
      subject(block.blocked), block.why, block.by, ago(block.since), block.until ? time(block.until) : "you lift it",
      ...(actions ? [h("button", { type: "button", "data-action": "unblock", "data-subject": JSON.stringify(block.blocked), "aria-label": `Lift the block of ${subject(block.blocked)}` }, "Lift")] : []),
    ],
    attributes: { "data-blocked": block.blocked.certname ?? "" },
  }))));
}

export function subject(blocked) {
  if (blocked.certname) return blocked.certname;
  if (blocked.fingerprint) return `fingerprint ${blocked.fingerprint}`;
  return `serial ${blocked.serial} of ${blocked.issuer}`;
}
