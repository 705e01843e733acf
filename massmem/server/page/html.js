// Preact with htm: html`<p>${text}</p>` makes elements. Text only ever becomes text; nothing here turns it into markup.
import { h, render, Fragment } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment };
export { useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect, useReducer, useErrorBoundary } from "./vendor/hooks.js";
