//! Tests of the judgement by names.

use super::*;

fn words_of(names: &str) -> impl Iterator<Item = &str> {
    names.split_whitespace()
}

fn effect(name: &str) -> Effect {
    of(name, &[]).effect
}

#[test]
fn names_that_read() {
    for name in words_of(
        "get_user listFiles read-file search mail.search server_status API/describe find_charge get_order \
            list_pull_requests read_email getRefundStatus find_and_count APIGetUser list_allowed_directories \
            read_multiple_files directory_tree_read get_file_info get_me get_pull_request_status \
            get_release_by_tag list_issues list_workflow_runs list_notifications search_code search_repositories \
            view_file slack_get_channel_history take_screenshot hget fetch_url list_merge_requests list_open_issues \
            get_users_and_groups jira_get_issue_create_meta users.list get_settings list_sent_emails \
            email_search order_history query_users getMergeRequests list_items_for_sale recall_memory validate_schema \
            get_order_and_refund_status check_inventory page_count get_issue_and_comments ping_host contact_get_customer find_user_by_phone_and_email",
    ) {
        assert_eq!(effect(name), Effect::Reads, "{name}: {:?}", of(name, &[]));
    }
}

#[test]
fn names_that_act() {
    for name in words_of(
        "get_or_create_user search_and_replace status_update getaway user read_and_delete listen x \
            toggle_status markAsRead set_list list_item_delete list_member_add search_index_delete \
            search_index_create query_history_clear view_settings_update show_booking_cancel version_tag_create \
            list_item_delete_all duplicate_list unsubscribe_from_list increment_count version_bump list_pop \
            browse_click fetch browse read_messages pop dequeue claim run_command evaluate kubectl execute \
            delete_email draft_email send_keys sendInput send_command send_signal create_payment_link \
            create_issue_link create_draft_note merge_cells update_comment write_query reorder_list_items \
            unknown_list API-patch-page create_event_type create_email_template unsend make_api_request \
            run_saved_query_and_delete delete_order search_then_frobnicate get_next_item replace_order reschedule_event \
            find_and_process extract_and_file find_and_contact_leads fetch_inbox_delete_originals \
            fetch_unread_emails_mark_read recall_email list_item_for_sale check_in_guest get_job_from_queue \
            validate_ticket merge git_merge merge_branches merge_shapes merge_contacts merge_dicts merge_config \
            merge_audio merge_sort post_process_image order_layers comment_out_lines respond_to_dialog message_box \
            transfer_focus charge_battery count_votes_and_release_results send_api_request send_raw_bytes get_name_and_email get_branch_and_commit",
    ) {
        assert_eq!(effect(name), Effect::Acts, "{name}: {:?}", of(name, &[]));
    }
}

#[test]
fn names_that_reach_other_people() {
    for name in words_of(
        "send_email status_message_send status_page_publish get_send_email info_mail_send charge \
            help_ticket_create read_receipt_send countOrderSubmit slack_post_message slack_reply_to_thread \
            createIssue create_pull_request create_merge_request merge_pull_request pull_request_merge \
            pull_request_review_submit add_comment_to_jira_issue add_issue_comment create-event issue_create \
            createInvoice refund_customer order_refund email_customer book_flight order_pizza \
            create_and_send_invoice schedule_send_email resendInvite bulk_create_issues sends_message \
            sendingMail respond_to_event invite_user buy_domain withdraw_funds notify make_payment issue_refund \
            capture_payment post_tweet post comment_on_issue submit_order post_status \
            find_and_message_leads lookup_and_email_customer scrape_then_email_report compare_and_order \
            analyze_and_comment_on_pr summarize_and_email query_and_email_results search_and_email_results \
            search_contacts_send_newsletter find_leads_send_campaign find_order_refund_it get_quote_buy_stock \
            ping_oncall merge_pr merge_mr accept_merge_request send_raw_email create_payment_v3 send_signal_message \
            send_api_key_email create_issue_v2 createOrder2 create_issues_bulk create_event_series \
            transfer_project_funds wire_funds sell_shares remit_funds disburse_payout place_trade place_bet page_oncall \
            text_customer dial_number fax_document summarize_and_post search_and_book_flight buy_device order_items send_raw_transaction charge_customer text_all_customers",
    ) {
        assert_eq!(effect(name), Effect::Outward, "{name}: {:?}", of(name, &[]));
    }
}

#[test]
fn names_that_read_and_act() {
    assert_ne!(effect("fetch_and_order_items"), Effect::Reads);
}

#[test]
fn names_that_carry_a_statement() {
    for name in words_of(
        "query execute_sql run_query pg_query sql query_database read_query run_select_query query_postgres \
            read_neo4j_cypher explain_query executeQuery execute_sql_on_branch",
    ) {
        assert_eq!(effect(name), Effect::Query, "{name}: {:?}", of(name, &[]));
    }
    assert_eq!(effect("search_query_log"), Effect::Reads);
    assert_eq!(effect("sql_scripts"), Effect::Query);
}

#[test]
fn steps_state_and_ends() {
    for name in words_of(
        "browser_press_key type scroll_page double_click next list_pop undo roll_dice send_keys navigate_back \
            lpop incr browser_type",
    ) {
        assert!(of(name, &[]).steps, "{name}");
    }
    for name in words_of(
        "connect login open_file browser_navigate select_page use_database go_to_url set_active_workspace \
            create_session sign_in",
    ) {
        assert!(of(name, &[]).sets_state, "{name}");
    }
    for name in
        ["delete_issue", "close_issue", "cancel_event", "orders.cancel", "archiveEmail", "unsend", "move_to_trash"]
    {
        assert!(of(name, &[]).ends, "{name}");
    }
    for name in words_of("get_type open_issue create_issue write_file send_email list_deleted") {
        let kind = of(name, &[]);
        assert!(!kind.steps && !kind.sets_state && !kind.ends, "{name}: {kind:?}");
    }
}

#[test]
fn a_prefix_that_all_share_is_left_out_unless_it_is_the_verb() {
    let prefix = |names: &[&str]| shared_prefix(names.iter().copied()).join(" ");
    assert_eq!(prefix(&["git_status", "git_commit"]), "git");
    assert_eq!(prefix(&["my-shop.order_create", "my-shop.order_list"]), "my shop order");
    assert_eq!(prefix(&["send_email", "send_sms"]), "");
    assert_eq!(prefix(&["send_grid_list_mails", "send_grid_send_mail"]), "send grid");
    assert_eq!(prefix(&["list", "list_pop"]), "");
    assert_eq!(prefix(&["git_status"]), "");
    assert_eq!(prefix(&[]), "");
    let own = |name: &str, prefix: &[&str]| of(name, &prefix.map_owned()).effect;
    assert_eq!(own("git_status", &["git"]), Effect::Reads);
    assert_eq!(own("issue_create", &["issue"]), Effect::Outward);
    assert_eq!(own("post_office_list_stamps", &["post", "office"]), Effect::Reads);
    assert_eq!(own("other_create", &["issue"]), Effect::Acts);
}

trait Owned {
    fn map_owned(&self) -> Vec<String>;
}

impl Owned for [&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|&word| word.to_owned()).collect()
    }
}

#[test]
fn the_reason_is_given() {
    for (name, why) in [
        ("send_email", "its name says that it reaches other people: send"),
        ("create_issue", "its name says that it makes something that reaches other people: issue"),
        ("get_user", "its name says that it reads: get"),
        ("write_file", "its name says that it acts: write"),
        ("query", "it carries a statement: query"),
        ("run_command", "it carries code or a command: command"),
        ("frobnicate", "nothing says that it only reads"),
    ] {
        assert_eq!(of(name, &[]).why, why, "{name}");
    }
}
