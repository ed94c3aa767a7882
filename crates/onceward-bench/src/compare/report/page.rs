//! A page: the generated part between two marks is replaced, and everything else stays as written by hand.

const START: &str = "<!-- figures -->";
const END: &str = "<!-- end -->";

/// Puts the generated text between the marks.
pub fn splice(page: &str, figures: &str) -> Result<String, String> {
    let missing = || format!("the marks `{START}` and `{END}` must occur once each, in this order");
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
    fn only_the_text_between_the_marks_changes() {
        let page = "# Title\n\nWords.\n\n<!-- figures -->\nold\n<!-- end -->\n\nMore words.\n";
        let new = splice(page, "new\n").unwrap();
        assert_eq!(new, "# Title\n\nWords.\n\n<!-- figures -->\n\nnew\n\n<!-- end -->\n\nMore words.\n");
        assert_eq!(splice(&new, "new\n").unwrap(), new);
    }

    #[test]
    fn a_page_without_both_marks_is_not_changed() {
        for page in
            ["", "<!-- figures -->", "<!-- end --> <!-- figures -->", "<!-- figures --><!-- end --><!-- end -->"]
        {
            assert!(splice(page, "new").is_err(), "{page}");
        }
    }
}
