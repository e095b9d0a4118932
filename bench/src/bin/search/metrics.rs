//! Metrics of ranking quality.

use std::fmt::Write;

use crate::data::Query;

/// Pairs of server and tool, best first.
pub(crate) type Ranking = Vec<(String, String)>;

/// The depths at which recall is measured.
const DEPTHS: [usize; 4] = [1, 3, 5, 10];

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Metrics {
    /// The share of relevant tools among the first 1, 3, 5 and 10.
    pub(crate) recall: [f64; 4],
    /// One divided by the rank of the first relevant tool.
    pub(crate) reciprocal_rank: f64,
    /// The discounted gain of the first ten results, relative to the best order.
    pub(crate) ndcg: f64,
}

impl Metrics {
    pub(crate) fn of(query: &Query, ranking: &Ranking) -> Self {
        let grade = |(server, tool): &(String, String)| {
            let fits = query.relevant.iter().find(|fit| fit.server == *server && fit.tool == *tool);
            fits.map_or(0.0, |fit| f64::from(fit.grade))
        };
        let grades: Vec<f64> = ranking.iter().map(grade).collect();
        let found = |depth: usize| grades.iter().take(depth).filter(|grade| **grade > 0.0).count() as f64;
        let mut best: Vec<f64> = query.relevant.iter().map(|fit| f64::from(fit.grade)).collect();
        best.sort_by(|a, b| b.total_cmp(a));
        let gain = |grades: &[f64]| -> f64 {
            let places = grades.iter().take(10).enumerate();
            places.map(|(at, grade)| grade / (at as f64 + 2.0).log2()).sum()
        };
        Self {
            recall: DEPTHS.map(|depth| found(depth) / query.relevant.len() as f64),
            reciprocal_rank: grades
                .iter()
                .position(|grade| *grade > 0.0)
                .map_or(0.0, |at| 1.0 / (at as f64 + 1.0)),
            ndcg: gain(&grades) / gain(&best),
        }
    }

    fn mean(all: &[Self]) -> Self {
        let mean = |of: &dyn Fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
        Self {
            recall: std::array::from_fn(|at| mean(&|metrics| metrics.recall[at])),
            reciprocal_rank: mean(&|metrics| metrics.reciprocal_rank),
            ndcg: mean(&|metrics| metrics.ndcg),
        }
    }
}

/// Returns the means over all queries, then over each style.
pub(crate) fn means(ranked: &[(&Query, Ranking)]) -> Vec<(String, Metrics)> {
    let mut styles: Vec<&str> = ranked.iter().map(|(query, _)| query.style.as_str()).collect();
    styles.sort_unstable();
    styles.dedup();
    let of = |style: Option<&str>| -> Metrics {
        let queries = ranked.iter().filter(|(query, _)| style.is_none_or(|style| query.style == style));
        Metrics::mean(&queries.map(|(query, ranking)| Metrics::of(query, ranking)).collect::<Vec<_>>())
    };
    let all = ("all".to_owned(), of(None));
    std::iter::once(all).chain(styles.iter().map(|style| ((*style).to_owned(), of(Some(style))))).collect()
}

pub(crate) fn table(ranked: &[(&Query, Ranking)]) -> String {
    let mut text = String::from(
        "| style | recall@1 | recall@3 | recall@5 | recall@10 | MRR | nDCG@10 |\n|---|---|---|---|---|---|---|\n",
    );
    for (style, mean) in means(ranked) {
        let [one, three, five, ten] = mean.recall;
        let (rank, ndcg) = (mean.reciprocal_rank, mean.ndcg);
        let _ = writeln!(
            text,
            "| {style} | {one:.3} | {three:.3} | {five:.3} | {ten:.3} | {rank:.3} | {ndcg:.3} |"
        );
    }
    text.push('\n');
    text
}

/// Describes one query: the rank of each relevant tool, and the first results.
pub(crate) fn explain(query: &Query, ranking: &Ranking) -> String {
    let mut text = format!("{}: {}\n", query.id, query.text);
    for fit in &query.relevant {
        let at = ranking.iter().position(|(server, tool)| *server == fit.server && *tool == fit.tool);
        let at = at.map_or("-".to_owned(), |at| (at + 1).to_string());
        let _ = writeln!(text, "    {at:>3}  {}/{} ({})", fit.server, fit.tool, fit.grade);
    }
    let first: Vec<_> = ranking.iter().take(3).map(|(server, tool)| format!("{server}/{tool}")).collect();
    let _ = writeln!(text, "    first: {}", first.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Relevant;

    fn query(fits: &[(&str, u8)]) -> Query {
        let fit =
            |(tool, grade): &(&str, u8)| Relevant { server: "s".into(), tool: (*tool).into(), grade: *grade };
        Query {
            id: "q".into(),
            style: "x".into(),
            text: "t".into(),
            relevant: fits.iter().map(fit).collect(),
        }
    }

    fn ranking(tools: &[&str]) -> Ranking {
        tools.iter().map(|tool| ("s".into(), (*tool).into())).collect()
    }

    #[test]
    fn the_best_order_is_perfect() {
        let metrics = Metrics::of(&query(&[("b", 1), ("a", 2)]), &ranking(&["a", "b"]));
        assert_eq!(metrics.recall, [0.5, 1.0, 1.0, 1.0]);
        assert_eq!((metrics.reciprocal_rank, metrics.ndcg), (1.0, 1.0));
    }

    #[test]
    fn later_ranks_count_less() {
        let metrics = Metrics::of(&query(&[("a", 2)]), &ranking(&["x", "y", "a"]));
        assert_eq!(metrics.recall, [0.0, 1.0, 1.0, 1.0]);
        assert!((metrics.reciprocal_rank - 1.0 / 3.0).abs() < 1e-9);
        assert!((metrics.ndcg - 0.5).abs() < 1e-9);
        assert_eq!(Metrics::of(&query(&[("a", 2)]), &ranking(&["x"])).ndcg, 0.0);
    }
}
