use postrider_contract::{Code, Refused};

use crate::seal::SealError;

/// What can go wrong with endpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input was refused; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The bus or its database.
    #[error(transparent)]
    Bus(postrider::Error),
    /// A secret could not be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Dice,
}

impl From<postrider::Error> for Error {
    fn from(error: postrider::Error) -> Self {
        match error {
            postrider::Error::Refused(refused) => Self::Refused(refused),
            other => Self::Bus(other),
        }
    }
}

impl Error {
    /// The stable code of a refusal.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refused) => Some(refused.code),
            Self::Bus(error) => error.code(),
            Self::Seal(_) | Self::Dice => None,
        }
    }

    /// Whether trying again later can help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Bus(error) if error.is_transient())
    }
}
