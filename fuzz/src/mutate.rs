//! Mutated copies of good input, from a printed seed: the smoke run of the fuzz targets.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Inputs that are written into a corpus at most.
const WRITTEN_MAX: usize = 16;

/// Calls `body` with each input of the seed corpus of `target` and each of `seeds`, and `runs`
/// times with a mutation of one or two of them.
///
/// With `WEFT_WRITE_SEEDS=1` the corpus, which libFuzzer begins with too, is made of `seeds` first;
/// what else is in it stays.
pub fn smoke(target: &str, seeds: &[Vec<u8>], runs: u32, body: impl Fn(&[u8])) {
    let corpus = corpus_of(target);
    if env::var_os("WEFT_WRITE_SEEDS").is_some() {
        write_corpus(&corpus, seeds);
    }
    let seeds = [seeds, &read_corpus(&corpus)].concat();
    mutations(&seeds, runs, body);
}

/// Where the inputs are that `target` begins with.
fn corpus_of(target: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let seeds = here.map(|dir| dir.join("fuzz/seeds")).find(|seeds| seeds.is_dir());
    seeds.expect("the tree has fuzz/seeds").join(target)
}

fn read_corpus(corpus: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(corpus).unwrap_or_else(|why| panic!("{}: {why}", corpus.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable corpus").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    files.iter().map(|file| fs::read(file).expect("a readable file")).collect()
}

fn write_corpus(corpus: &Path, seeds: &[Vec<u8>]) {
    fs::create_dir_all(corpus).expect("a corpus that can be written");
    for (at, seed) in seeds.iter().enumerate().take(WRITTEN_MAX) {
        fs::write(corpus.join(format!("seed-{at:02}")), seed).expect("a corpus with room");
    }
}

/// Calls `body` with each of `seeds`, and `runs` times with a mutation of one or two of them.
pub fn mutations(seeds: &[Vec<u8>], runs: u32, body: impl Fn(&[u8])) {
    let given = env::var("WEFT_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("WEFT_SEED={seed}");
    seeds.iter().for_each(|seed| body(seed));
    let mut random = Random(seed);
    for _ in 0..runs {
        let mut data = random.of(seeds).clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, seeds, &mut random);
        }
        body(&data);
    }
}

fn mutate(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(data.len() + 1);
    match random.below(6) {
        0 => data.truncate(at),
        1 => data.extend(random.of(seeds)),
        2 => data.insert(at, random.next() as u8),
        _ if at == data.len() => data.push(0),
        3 => data[at] ^= 1 << random.below(8),
        4 => data[at] = *random.of(&[0, 1, 0x7f, 0x80, 0xff]),
        _ => drop(data.remove(at)),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
