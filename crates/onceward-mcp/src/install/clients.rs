//! The known MCP clients and the paths of their configuration files.

use std::path::{Path, PathBuf};

use super::json_tree::{Member, Node};

/// A program that starts MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Client {
    /// .mcp.json of the project, and .claude.json of the user with all its projects
    ClaudeCode,
    /// claude_desktop_config.json of the user
    ClaudeDesktop,
    /// .cursor/mcp.json of the project and of the user
    Cursor,
    /// .vscode/mcp.json of the project, and mcp.json of the user
    Vscode,
    /// Any file with servers under mcpServers or servers; needs --file
    Json,
}

/// The clients whose files are looked for.
const SEARCHED_CLIENTS: [Client; 4] = [Client::ClaudeCode, Client::ClaudeDesktop, Client::Cursor, Client::Vscode];

impl Client {
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Json => "JSON",
        }
    }

    /// Whether the client starts servers without the PATH of a shell, so that it needs absolute paths.
    pub(super) fn lacks_path(self) -> bool {
        self == Self::ClaudeDesktop
    }

    fn files(self) -> Vec<PathBuf> {
        let project = |path: &str| Some(PathBuf::from(path));
        let user = |path: &str| Some(variable("HOME")?.join(path));
        let support = |path: &str| Some(support_folder()?.join(path));
        let files = match self {
            Self::ClaudeCode => {
                let own = variable("CLAUDE_CONFIG_DIR").map(|folder| folder.join(".claude.json"));
                vec![project(".mcp.json"), own.or_else(|| user(".claude.json"))]
            }
            Self::ClaudeDesktop => vec![support("Claude/claude_desktop_config.json")],
            Self::Cursor => vec![project(".cursor/mcp.json"), user(".cursor/mcp.json")],
            Self::Vscode => {
                let mut files = vec![project(".vscode/mcp.json")];
                for program in ["Code", "Code - Insiders"] {
                    files.push(support(&format!("{program}/User/mcp.json")));
                    files.extend(support(&format!("{program}/User/profiles")).iter().flat_map(|it| profiles(it)));
                }
                files
            }
            Self::Json => Vec::new(),
        };
        files.into_iter().flatten().collect()
    }

    /// The objects that hold servers by name, each with its project where a file has several.
    pub(super) fn tables<'t>(self, root: &'t Node) -> Vec<(Option<&'t str>, &'t Member)> {
        let mut tables = Vec::new();
        let names: &[&str] = match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => &["mcpServers"],
            Self::Vscode => &["servers"],
            Self::Json => &["mcpServers", "servers"],
        };
        tables.extend(names.iter().filter_map(|name| Some((None, root.member(name)?))));
        // Older versions of VS Code kept them in the settings.
        if matches!(self, Self::Vscode | Self::Json) {
            tables.extend(root.get("mcp").and_then(|mcp| mcp.member("servers")).map(|servers| (None, servers)));
        }
        if matches!(self, Self::ClaudeCode | Self::Json) {
            let projects = root.get("projects").map(Node::members).unwrap_or_default();
            let servers =
                |project: &'t Member| Some((Some(project.name.as_str()), project.value.member("mcpServers")?));
            tables.extend(projects.iter().filter_map(servers));
        }
        tables
    }
}

/// The existing files of one client or of all.
pub(super) fn existing(client: Option<Client>) -> Vec<(Client, PathBuf)> {
    let clients = client.map_or_else(|| SEARCHED_CLIENTS.to_vec(), |client| vec![client]);
    let mut found: Vec<(Client, PathBuf)> = Vec::new();
    for client in clients {
        for file in client.files().into_iter().filter(|file| file.is_file()) {
            // In the home folder, the project's file and the user's file are the same.
            let is_known = found.iter().any(|(_, other)| same(other, &file));
            if !is_known {
                found.push((client, file));
            }
        }
    }
    found
}

/// The paths of one client's files or of all, whether they exist or not.
pub(super) fn known_paths(client: Option<Client>) -> Vec<PathBuf> {
    let clients = client.map_or_else(|| SEARCHED_CLIENTS.to_vec(), |client| vec![client]);
    clients.into_iter().flat_map(Client::files).collect()
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().ok().is_some_and(|one| other.canonicalize().ok() == Some(one))
}

/// Each profile of VS Code has its own servers.
fn profiles(folder: &Path) -> Vec<Option<PathBuf>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| Some(entry.path().join("mcp.json"))).collect();
    files.sort();
    files
}

/// The folder where desktop programs keep their settings.
fn support_folder() -> Option<PathBuf> {
    if cfg!(windows) {
        return variable("APPDATA");
    }
    if cfg!(target_os = "macos") {
        return Some(variable("HOME")?.join("Library/Application Support"));
    }
    let configured = variable("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    configured.or_else(|| Some(variable("HOME")?.join(".config")))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
