//! The page: figures between two marks are replaced, and everything else is left as a person wrote it.

const START: &str = "<!-- figures -->";
const END: &str = "<!-- end -->";

/// Puts the figures between the marks.
pub fn splice(page: &str, figures: &str) -> Result<String, String> {
    let missing = || format!("the marks `{START}` and `{END}` are needed once each, in this order");
    let (before, rest) = page.split_once(START).ok_or_else(missing)?;
    let (old, after) = rest.split_once(END).ok_or_else(missing)?;
    if [before, old, after].iter().any(|part| part.contains(START) || part.contains(END)) {
        return Err(missing());
    }
    Ok(format!("{before}{START}\n\n{}\n\n{END}{after}", figures.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_the_marks_changes() {
        let page = "# Title\n\nWords.\n\n<!-- figures -->\nold\n<!-- end -->\n\nMore words.\n";
        let new = splice(page, "new\n").unwrap();
        assert_eq!(new, "# Title\n\nWords.\n\n<!-- figures -->\n\nnew\n\n<!-- end -->\n\nMore words.\n");
        assert_eq!(splice(&new, "new\n").unwrap(), new);
    }

    #[test]
    fn a_page_without_both_marks_is_left_alone() {
        for page in
            ["", "<!-- figures -->", "<!-- end --> <!-- figures -->", "<!-- figures --><!-- end --><!-- end -->"]
        {
            assert!(splice(page, "new").is_err(), "{page}");
        }
    }
}
