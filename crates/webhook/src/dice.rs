use rand::TryRng as _;
use rand::rngs::SysRng;

use crate::error::Error;

/// Bytes that nobody can guess, for secrets and nonces; from the operating system.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(|_| Error::Dice)?;
    Ok(bytes)
}
