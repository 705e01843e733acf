// Draws the Mermaid diagram of the address. This document has no rights (see _DIAGRAM in massmem/server/routes/page.py).
const [main, title, line, source] = ["main", "h1", "p", "pre"].map((name) => document.querySelector(name));
const text = decodeURIComponent(location.hash.slice(1));
source.textContent = text;
mermaid.initialize({ startOnLoad: false, suppressErrorRendering: true, securityLevel: "strict", theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "default" });
mermaid.render("diagram", text).then(
  ({ svg }) => {
    title.className = "hidden";
    line.remove();
    source.outerHTML = svg;
    main.querySelector("svg").setAttribute("aria-label", "Diagram");
  },
  (error) => (line.textContent = `This cannot be drawn: ${String(error.message || error).split("\n")[0].replace(/:$/, "")}.`),
).finally(() => main.setAttribute("aria-busy", "false"));
