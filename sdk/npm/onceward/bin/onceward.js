#!/usr/bin/env node
"use strict";

// Starts the onceward binary of this platform. The binary is in a package of its own, which npm installs as an optional
// dependency of this one.

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const tty = require("node:tty");

const { optionalDependencies } = require("../package.json");

// The binary's own code for a configuration error. Callers can rely on it: nothing ran.
const CONFIGURATION_ERROR = 78;

const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP"];

// A terminal sends these to every process in the foreground, so the binary gets them without the launcher.
const SENT_BY_TERMINAL = ["SIGINT", "SIGHUP"];

const OVERRIDE = "set ONCEWARD_BINARY to the path of an onceward binary";
const BUILD = `build the binary with Rust (cargo build --release), and ${OVERRIDE}`;

function main() {
  const args = process.argv.slice(2);
  try {
    const binary = findBinary();
    if (process.platform !== "win32" && process.execve) {
      replaceProcess(binary, args);
    } else {
      runChild(binary, args);
    }
  } catch (error) {
    fail(error.message);
  }
}

function fail(message) {
  fs.writeSync(2, `onceward: ${message}\n`);
  process.exit(CONFIGURATION_ERROR);
}

function findBinary() {
  const named = process.env.ONCEWARD_BINARY;
  return named ? binaryNamedByUser(path.resolve(named)) : binaryOfPackage();
}

function binaryNamedByUser(file) {
  requireExecutable(file, `ONCEWARD_BINARY names ${file}, which`, "Correct or unset ONCEWARD_BINARY.");
  // Otherwise the launcher would start itself without end.
  if (fs.realpathSync(file) === fs.realpathSync(__filename)) {
    throw new Error(`ONCEWARD_BINARY names ${file}, which is the launcher itself.\n  Unset ONCEWARD_BINARY.`);
  }
  return file;
}

function binaryOfPackage() {
  const platform = `${process.platform}-${process.arch}`;
  const name = `@onceward/${platform}`;
  if (!(name in optionalDependencies)) {
    const available = Object.keys(optionalDependencies).map((one) => one.replace("@onceward/", ""));
    throw new Error(
      `there is no npm package with a binary for ${platform}; there are packages for ${available.join(", ")}.\n` +
        `  Instead, ${BUILD}.`,
    );
  }
  const folder = folderOfPackage(name);
  const file = path.join(folder, "bin", process.platform === "win32" ? "onceward.exe" : "onceward");
  requireExecutable(file, `${file}`, "Install onceward again.");
  return file;
}

function folderOfPackage(name) {
  try {
    return path.dirname(require.resolve(`${name}/package.json`));
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") {
      throw error;
    }
  }
  if (isMusl()) {
    throw new Error(`the binary needs glibc, and this system has musl, as Alpine does.\n  Instead, ${BUILD}.`);
  }
  throw new Error(
    `the package ${name}, which contains the binary, is not installed.\n` +
      "  npm omits it with --omit=optional, and a node_modules folder from another platform lacks it.\n" +
      "  Install onceward again with `npm install --include=optional onceward`,\n" +
      `  or ${OVERRIDE}.`,
  );
}

function isMusl() {
  return process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
}

function requireExecutable(file, subject, remedy) {
  const found = fs.statSync(file, { throwIfNoEntry: false });
  if (!found) {
    throw new Error(`${subject} does not exist.\n  ${remedy}`);
  }
  if (!found.isFile()) {
    throw new Error(`${subject} is not a file.\n  ${remedy}`);
  }
  try {
    fs.accessSync(file, fs.constants.X_OK);
  } catch {
    throw new Error(`${subject} is not executable.\n  ${remedy}`);
  }
}

// Replaces this process, so that signals, exit codes and the terminal need no launcher. Node has this from 22.15 on.
function replaceProcess(binary, args) {
  try {
    process.execve(binary, [binary, ...args], process.env);
  } catch (error) {
    throw new Error(`cannot run ${binary}: ${error.message}`);
  }
}

function runChild(binary, args) {
  // The MCP gateway ends when its stdin closes. Its stdin is a pipe from the launcher, so that it ends with the launcher
  // even after SIGKILL. Other commands may share their stdin with other processes, so the launcher does not read it.
  const relays = args[0] === "mcp" && !tty.isatty(0);
  const hasTerminal = [0, 1, 2].some((fd) => tty.isatty(fd));
  let child;
  // Before the binary starts: without a handler, a signal would end the launcher before the binary.
  for (const signal of FORWARDED) {
    const isDelivered = hasTerminal && SENT_BY_TERMINAL.includes(signal);
    process.on(signal, () => isDelivered || child?.kill(signal));
  }
  child = spawn(binary, args, { stdio: [relays ? "pipe" : "inherit", "inherit", "inherit"] });
  child.on("error", (error) => fail(`cannot run ${binary}: ${error.message}`));
  child.on("exit", endLikeChild);
  if (relays) {
    relayStdin(child.stdin);
  }
}

function relayStdin(to) {
  // The binary may end before it has read everything; its exit is reported by `endLikeChild`.
  to.on("error", () => {});
  process.stdin.on("error", () => to.end());
  process.stdin.pipe(to);
}

function endLikeChild(code, signal) {
  if (signal) {
    FORWARDED.forEach((one) => process.removeAllListeners(one));
    process.kill(process.pid, signal);
  }
  // Node ignores some signals. As in a shell, the exit code then names the signal.
  process.exit(signal ? 128 + os.constants.signals[signal] : code);
}

main();
