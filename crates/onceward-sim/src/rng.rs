//! Random numbers from a seed, so that a plan can be repeated.

/// SplitMix64: small, and good enough to shuffle a plan.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for one purpose: the same parts give the same numbers.
    pub fn of(parts: &[u64]) -> Self {
        let mut rng = Self(0x9e37_79b9_7f4a_7c15);
        for part in parts {
            rng.0 ^= part.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            rng.0 = rng.bits();
        }
        rng
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end.max(1)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the choices, by weight.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut rest = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if rest < *weight {
                return *choice;
            }
            rest -= weight;
        }
        choices[choices.len() - 1].1
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, usize::try_from(self.below(end as u64 + 1)).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_parts_give_the_same_numbers_and_others_do_not() {
        let numbers =
            |parts: &[u64]| (0..8).map(|_| 0).scan(Rng::of(parts), |rng, _: i32| Some(rng.bits())).collect::<Vec<_>>();
        assert_eq!(numbers(&[1, 2]), numbers(&[1, 2]));
        assert_ne!(numbers(&[1, 2]), numbers(&[2, 1]));
        assert_ne!(numbers(&[0]), numbers(&[0, 0]));
    }

    #[test]
    fn every_choice_with_a_weight_comes_up() {
        let mut rng = Rng::of(&[7]);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[rng.weighted(&[(1, 0), (0, 1), (3, 2)])] += 1;
        }
        assert!(seen[0] > 150 && seen[1] == 0 && seen[2] > 600, "{seen:?}");
    }
}
