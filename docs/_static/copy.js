// A button in every block of code that copies it: of a session only what was typed.
const typed = (text) => {
  const prompt = /^(\$ |>>> |\.\.\. ?)/;
  const lines = text.split("\n");
  const session = lines.some((line) => /^(\$|>>>) /.test(line));
  const kept = session ? lines.filter((line) => prompt.test(line)) : lines;
  return kept.map((line) => (session ? line.replace(prompt, "") : line)).join("\n").trimEnd() + "\n";
};

const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page that is opened as a file may have no clipboard of its own.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const code = block.querySelector("pre");
    if (!code) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      await copy(typed(code.textContent));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
});
