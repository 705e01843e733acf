// How numbers and times are shown.

export const count = (number) => number.toLocaleString("en");

export function tokens(number) {
  if (number < 1000) return String(number);
  if (number < 1e6) return `${(number / 1000).toFixed(number < 10_000 ? 1 : 0)}k`;
  return `${(number / 1e6).toFixed(1)}M`;
}

export function dollars(amount) {
  if (amount === null || amount === undefined) return "price not known";
  if (amount === 0) return "$0";
  return amount >= 0.01 ? `$${amount.toFixed(2)}` : `$${amount.toPrecision(2)}`;
}

export function seconds(number) {
  if (number < 60) return `${number.toFixed(number < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(number / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(number % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;

export function bytes(number) {
  if (number < 1000) return `${number} B`;
  if (number < 1e6) return `${(number / 1000).toFixed(0)} kB`;
  return number < 1e9 ? `${(number / 1e6).toFixed(1)} MB` : `${(number / 1e9).toFixed(1)} GB`;
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

// Returns the time of day for today, else the day.
export function when(text) {
  const date = new Date(text);
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return TIME.format(date);
  return (date.getFullYear() === now.getFullYear() ? DAY : YEAR).format(date);
}

export const exactly = (text) => new Date(text).toLocaleString();

// Returns the heading under which a session stands in the list.
export function dayGroup(text) {
  const days = Math.floor((startOfDay(new Date()) - startOfDay(new Date(text))) / 86_400_000 + 0.5);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "This week";
  if (days < 31) return "This month";
  return "Earlier";
}

const startOfDay = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// What people call a project that may be a path: the name of its folder.
export const projectName = (project) => project.split(/[\\/]/).filter(Boolean).at(-1) || project;
