//! The names of the keys. All keys of one shard share a hash tag, so that a cluster keeps them on one node.

use onceward_core::hash::Digest;

use super::codec::Index;

/// The number of shards. It never changes: the shard of a record is part of its key. More than the nodes of any sensible cluster
/// for a ledger, and few enough that a list can ask each of them.
pub(super) const SHARDS: usize = 64;

/// The keys that the records of one shard share.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    tag: String,
    /// The epoch and the seal.
    pub(super) epoch: String,
    /// All ids, in the order of recording.
    pub(super) order: String,
    indexes: [String; 3],
    /// The number of records of each tenant.
    pub(super) tenants: String,
    /// The entries of the outbox, in the order in which couriers get them.
    pub(super) waiting: String,
    /// The ids that downstreams gave to effects, in their order.
    pub(super) references: String,
    /// Where each record is in the two above.
    places: String,
}

impl Shard {
    pub(super) fn index(&self, index: Index) -> &str {
        &self.indexes[index as usize]
    }

    /// The keys in which records are found by what they contain, in the order of the scripts.
    pub(super) fn places(&self) -> [&str; 3] {
        [&self.waiting, &self.references, &self.places]
    }

    pub(super) fn record(&self, id: &Digest) -> String {
        self.named("r:", id.as_bytes())
    }

    pub(super) fn trail(&self, id: &Digest) -> String {
        self.named("a:", id.as_bytes())
    }

    /// The reservations of a tenant.
    pub(super) fn reservations(&self, tenant: &[u8; 16]) -> String {
        self.named("q:", tenant)
    }

    /// The key that a check writes.
    pub(super) fn check(&self) -> String {
        format!("{}c", self.tag)
    }

    fn named(&self, kind: &str, name: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = String::with_capacity(self.tag.len() + kind.len() + name.len() * 2);
        key.push_str(&self.tag);
        key.push_str(kind);
        for byte in name {
            key.push(DIGITS[usize::from(byte >> 4)] as char);
            key.push(DIGITS[usize::from(byte & 15)] as char);
        }
        key
    }
}

/// The names of all keys of a ledger.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) shards: Vec<Shard>,
    /// The ledger itself: version and epoch.
    pub(super) ledger: String,
    /// Set while a seal is written to the shards.
    pub(super) sealing: String,
    /// The operations that live in this store.
    pub(super) operations: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let shards = (0..SHARDS).map(|number| {
            let tag = format!("{{{prefix}:{number:02x}}}:");
            Shard {
                epoch: format!("{tag}e"),
                order: format!("{tag}o"),
                indexes: Index::ALL.map(|index| format!("{tag}{}", index.letter())),
                tenants: format!("{tag}n"),
                waiting: format!("{tag}w"),
                references: format!("{tag}f"),
                places: format!("{tag}p"),
                tag,
            }
        });
        let shards: Vec<Shard> = shards.collect();
        let [ledger, sealing, operations] =
            ["ledger", "sealing", "operations"].map(|name| format!("{}{name}", shards[0].tag));
        Self { shards, ledger, sealing, operations }
    }

    /// The shard of a record: the order of the shards is the order of the ids.
    pub(super) fn of(&self, id: &Digest) -> &Shard {
        &self.shards[Self::number_of(id)]
    }

    /// The number of that shard.
    pub(super) fn number_of(id: &Digest) -> usize {
        usize::from(id.as_bytes()[0] >> 2)
    }

    /// The shard in which the places of a tenant are reserved.
    pub(super) fn of_tenant(&self, tenant: &[u8; 16]) -> &Shard {
        &self.shards[usize::from(tenant[0] >> 2)]
    }
}

#[cfg(test)]
mod tests {
    use onceward_core::hash::digest;

    use super::*;

    #[test]
    fn the_keys_of_a_record_share_the_hash_tag_of_its_shard() {
        let keys = Keys::new("mail");
        for number in 0..500_u32 {
            let id = digest(&number.to_be_bytes());
            let shard = keys.of(&id);
            let tag = |key: &str| key.split_once('}').map(|(tag, _)| tag.to_owned());
            let mut all = vec![shard.record(&id), shard.trail(&id), shard.check(), shard.reservations(&[1; 16])];
            all.extend([&shard.epoch, &shard.order, &shard.tenants].map(Clone::clone));
            all.extend([&shard.waiting, &shard.references, &shard.places].map(Clone::clone));
            all.extend(Index::ALL.map(|index| shard.index(index).to_owned()));
            assert!(all.iter().all(|key| tag(key) == tag(&shard.tag)), "{all:?}");
            assert!(shard.record(&id).ends_with(&format!("}}:r:{id}")));
        }
        assert_eq!(keys.shards[63].epoch, "{mail:3f}:e");
    }

    #[test]
    fn shards_are_in_the_order_of_the_ids() {
        let keys = Keys::new("mail");
        let mut ids: Vec<_> = (0..500_u32).map(|number| digest(&number.to_be_bytes())).collect();
        ids.sort();
        let shards: Vec<_> = ids.iter().map(|id| keys.of(id).tag.clone()).collect();
        assert!(shards.is_sorted());
    }
}
