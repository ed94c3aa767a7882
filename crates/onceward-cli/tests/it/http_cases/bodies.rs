//! Bodies: binary, large, streamed; and headers that are for one delivery only.

use onceward::http::Kind;

use super::case::{Case, Step, UpstreamReply, again, case, fresh, post, problem, replies};
use super::kept_responses::twice;

pub(super) fn cases() -> Vec<Case> {
    let binary: Vec<u8> = (0..=255u8).cycle().take(5000).collect();
    let large = vec![b'x'; 300 * 1024];
    let mebibyte = 1024 * 1024;
    vec![
        case(
            "bytes are replayed unchanged",
            vec![replies(200, binary.clone()).header("content-type", "application/octet-stream")],
            twice(post("k").body(binary.clone()), 200, &binary),
        ),
        case("an empty response is replayed empty", vec![replies(204, "")], twice(post("k"), 204, b"")),
        case(
            "headers are replayed, except for cookies and hop-by-hop headers",
            vec![
                replies(201, "one")
                    .header("x-request-id", "req_7")
                    .header("location", "/v1/charges/7")
                    .header("set-cookie", "session=7"),
            ],
            vec![
                post("k").gets(
                    fresh(201, "one")
                        .header("x-request-id", "req_7")
                        .header("set-cookie", "session=7")
                        .header("idempotency-expires", "*"),
                ),
                post("k").gets(
                    again(201, "one")
                        .header("x-request-id", "req_7")
                        .header("location", "/v1/charges/7")
                        .header("content-type", "application/json")
                        .no_header("set-cookie"),
                ),
            ],
        ),
        case(
            "a request over the limit is refused, and one at the limit is not",
            vec![replies(201, "one")],
            vec![
                post("k").body(vec![b'x'; mebibyte + 1]).gets(problem(Kind::BodyTooLarge)),
                post("k").body(vec![b'x'; mebibyte]).gets(fresh(201, "one")),
            ],
        ),
        case(
            "a response that is too large to keep is delivered in full, and reported to repeats",
            vec![replies(201, large.clone())],
            vec![
                post("k").gets(fresh(201, large)),
                post("k").gets(
                    problem(Kind::NotKept)
                        .member("original_status", "201")
                        .member("outcome_digest", "*")
                        .header("x-should-retry", "false"),
                ),
                post("k").body("{}").gets(problem(Kind::Mismatch)),
            ],
        ),
        case(
            "events reach the first caller as they come, and a repeat gets all of them",
            vec![UpstreamReply::Pieces {
                content_type: "text/event-stream",
                pieces: vec!["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"],
            }],
            vec![
                Step::PieceByPiece(post("k"), vec!["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"]),
                post("k")
                    .gets(again(200, "data: 1\n\ndata: 2\n\ndata: 3\n\n").header("content-type", "text/event-stream")),
            ],
        ),
    ]
}
