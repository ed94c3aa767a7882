//! Gives up a copy: opens its source again, and releases its target if nothing has arrived there.

use super::{CopyError, Side};
use crate::store::transfer::{Arrival, Departure, Seal};

/// What [`unseal`] has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// Nothing: the ledger was not sealed.
    Nothing,
    /// The source of a copy.
    Source(Departure),
    /// The target of a copy, of which nothing had arrived.
    Target(Arrival),
}

/// What has become of the target of a copy that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was only reserved, and can be used again.
    Opened,
    /// It holds a part of the copy, and stays closed.
    HoldsPart,
    /// It was not reserved for this copy. Nothing was changed.
    NotReserved,
}

/// Opens a source again whose copy was given up. After the copy was verified, only if `force`: the target may be in use, and
/// both ledgers would then grant claims for the same work. A target is opened if it was only reserved: its source is then lost
/// or out of reach, and its copy cannot go on there.
pub async fn unseal(from: &Side, force: bool) -> Result<Unsealed, CopyError> {
    let seal = from.transfer()?.seal().await?;
    let departure = match &seal {
        Seal::Open | Seal::Received(_) => return Ok(Unsealed::Nothing),
        Seal::Draining(departure) | Seal::Sealed(departure) => departure.clone(),
        Seal::Moved(departure) if force => departure.clone(),
        Seal::Moved(departure) => {
            return Err(CopyError::Refused(format!(
                "{} was moved to {}, which may be in use: with both open, work would run twice. If {} was never used, unseal \
                 with --force",
                from.name, departure.to, departure.to
            )));
        }
        Seal::Receiving(arrival) => {
            return match open_reserved(from, &seal, arrival).await? {
                true => Ok(Unsealed::Target(arrival.clone())),
                false => Err(CopyError::Refused(format!(
                    "{} holds a part of a copy of {}, and is opened when that copy is complete. Remove it, or finish the copy",
                    from.name, arrival.from
                ))),
            };
        }
    };
    from.set_seal(&seal, Seal::Open).await?;
    Ok(Unsealed::Source(departure))
}

/// Releases the target of a copy that was given up, if nothing of it has arrived there.
pub async fn release(to: &Side, departure: &Departure) -> Result<Released, CopyError> {
    let seal = to.transfer()?.seal().await?;
    let Some(arrival) = seal.receiving(&departure.token) else { return Ok(Released::NotReserved) };
    Ok(match open_reserved(to, &seal, arrival).await? {
        true => Released::Opened,
        false => Released::HoldsPart,
    })
}

/// Opens a target that has no record. A copy that still runs finds another seal, and writes nothing.
async fn open_reserved(to: &Side, seal: &Seal, arrival: &Arrival) -> Result<bool, CopyError> {
    let is_empty = arrival.after.is_none() && to.transfer()?.export(None, 1).await?.is_empty();
    if is_empty {
        to.set_seal(seal, Seal::Open).await?;
    }
    Ok(is_empty)
}
