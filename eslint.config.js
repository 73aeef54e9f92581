import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/*.min.js"] }, // what esbuild writes
  {
    files: ["**/*.js"],
    languageOptions: { globals: { ...globals.browser, Plotly: "readonly" } },
    rules: {
      ...js.configs.recommended.rules,
      "no-unused-vars": ["error", { ignoreRestSiblings: true }], // `const { of, ...others } = line` leaves a property out
    },
  },
];
