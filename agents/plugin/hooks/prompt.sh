# Prints prompt.md as the additional context of a hook event: sh prompt.sh SessionStart
#
# JSON rather than plain text, because Claude Code ignores the plain output of SubagentStart hooks.
awk -v event="$1" '
    BEGIN { printf "{\"hookSpecificOutput\":{\"hookEventName\":\"%s\",\"additionalContext\":\"", event }
    { gsub(/[\\"]/, "\\\\&"); gsub(/\t/, "\\t"); gsub(/\r/, ""); printf "%s\\n", $0 }
    END { print "\"}}" }
' "${CLAUDE_PLUGIN_ROOT:?}/prompt.md"
