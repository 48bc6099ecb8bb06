import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    cache: false, // runs at the same time would write the same file
    include: ["conformance.test.js"],
    testTimeout: 30_000,
  },
})
