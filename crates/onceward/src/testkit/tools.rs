//! Checks several tools, and reports one line for each.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};

use super::bench::TestBench;
use super::check::{Options, Tool, report, settings};
use super::report::Report;
use super::verdict::Verdict;

/// A check of several tools, with its settings. `.await` runs it.
#[must_use = "the check runs only when it is awaited"]
#[derive(Default)]
pub struct Tools<'a> {
    tools: Vec<Tool<'a>>,
    options: Options<'a>,
}

/// Checks several tools: one line for each.
///
/// ```
/// # use onceward::testkit::{self, Provider, Receipt, TestBench};
/// # use onceward::{Error, Failure, Ledger};
/// # async fn mail(ledger: Ledger, provider: Provider) -> Result<Receipt, Error> {
/// #     let call = ledger.operation("send_email").key("welcome-7");
/// #     Ok(call.run(|_| async { provider.act("mail").await.map_err(Failure::unknown) }).await?.value)
/// # }
/// # async fn book(ledger: Ledger, provider: Provider) -> Result<Receipt, Error> {
/// #     let call = ledger.operation("book_room").key("room-12");
/// #     Ok(call.run(|_| async { provider.act("book").await.map_err(Failure::unknown) }).await?.value)
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// testkit::tools()
///     .tool("send_email", |bench| mail(bench.ledger(), bench.provider()))
///     .tool("book_room", |bench| book(bench.ledger(), bench.provider()))
///     .await
///     .assert_once();
/// # }
/// ```
pub fn tools<'a>() -> Tools<'a> {
    Tools::default()
}

settings!(Tools);

impl<'a> Tools<'a> {
    /// Adds a tool.
    pub fn tool<T, E, W>(mut self, name: &str, tool: impl Fn(TestBench) -> W + 'a) -> Self
    where
        E: fmt::Display,
        W: Future<Output = Result<T, E>> + 'a,
    {
        self.tools.push(Tool::new(name, tool));
        self
    }
}

impl<'a> IntoFuture for Tools<'a> {
    type Output = Reports;
    type IntoFuture = LocalBoxFuture<'a, Reports>;

    fn into_future(self) -> Self::IntoFuture {
        async move { Reports(join_all(self.tools.iter().map(|tool| report(tool, &self.options))).await) }.boxed_local()
    }
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| &tool.name)).finish()
    }
}

/// The result of a check of several tools: a line for each, and the full reports of those that are broken.
#[derive(Clone, Debug)]
pub struct Reports(Vec<Report>);

impl Reports {
    /// The report of each tool, in the order in which they were added.
    pub fn reports(&self) -> &[Report] {
        &self.0
    }

    /// Whether every tool passed. See [`Report::is_once`].
    pub fn is_once(&self) -> bool {
        self.0.iter().all(Report::is_once)
    }

    /// Panics with the reports unless the effect of every tool happens once. See [`Report::assert_once`].
    // A test reports a failed expectation with a panic.
    #[allow(clippy::panic)]
    #[track_caller]
    pub fn assert_once(self) -> Self {
        if !self.is_once() {
            panic!("the effect of every tool must happen once\n\n{self}");
        }
        self
    }
}

impl fmt::Display for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|report| report.tool().chars().count()).max().unwrap_or_default().max(4);
        writeln!(f, "{:width$}  scenarios  once  held  not done  not tried  broken", "tool")?;
        for report in &self.0 {
            let count = |verdict| report.lines().iter().filter(|line| line.verdict() == verdict).count();
            let (all, broken) = (report.lines().len(), report.violations().count());
            let [once, held, not_done, not_tried] =
                [Verdict::Once, Verdict::Held, Verdict::NotDone, Verdict::NotTried].map(count);
            let verdict = if broken == 0 { "ok" } else { "BROKEN" };
            let tool = report.tool();
            writeln!(
                f,
                "{tool:width$}  {all:>9}  {once:>4}  {held:>4}  {not_done:>8}  {not_tried:>9}  {broken:>6}  {verdict}"
            )?;
        }
        for report in self.0.iter().filter(|report| !report.is_once()) {
            write!(f, "\n{report}")?;
        }
        Ok(())
    }
}
