use std::collections::BTreeMap;

/// What a statement does to the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Rows that are new.
    Insert,
    /// Rows that change. One whose primary key changes is told as one that was deleted and one that was created.
    Update,
    /// Rows that go.
    Delete,
    /// All rows at once: one event for the table.
    Truncate,
}

impl Operation {
    /// Every operation, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Insert, Self::Update, Self::Delete, Self::Truncate];

    /// Its name, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
        }
    }

    /// The operation of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// A watch: changes of a table become events, recorded in the transactions that make them. Declared by the owner of the table.
///
/// Its texts are SQL expressions over the columns of `new` and `old`, one row each; where there is no such row, its columns are null. They
/// run with the rights of the table's owner: code, never something that a user typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The table, with its schema, as SQL spells it: `shop.order`, `"Shop"."Order"`.
    pub relation: String,
    /// Its name. Default: that of the table, in lower case, with its schema unless that is `public`.
    pub name: Option<String>,
    /// The columns whose change is an event, and which an event tells beside the key. Default: all of them, also those to come.
    pub columns: Option<Vec<String>>,
    /// The operations that are told. Default: all.
    pub operations: Vec<Operation>,
    /// The event types of operations, which are declared. Default: the table's name and `created`, `updated`, `deleted`, `truncated`, which
    /// are declared along.
    pub types: BTreeMap<Operation, String>,
    /// Only changes for which this is true.
    pub condition: Option<String>,
    /// What an event is about. Default: the table's name and the key, `order/42`; also where this is null.
    pub subject: Option<String>,
    /// The data of an event, json or jsonb. Default: `{"old": {…}, "new": {…}}`, whichever there is.
    pub data: Option<String>,
    /// Whose an event is. Default: the instance's; also where this is null.
    pub owner: Option<String>,
}

impl Watch {
    /// Every change of every column of a table.
    pub fn table(relation: impl Into<String>) -> Self {
        Self {
            relation: relation.into(),
            name: None,
            columns: None,
            operations: Operation::ALL.to_vec(),
            types: BTreeMap::new(),
            condition: None,
            subject: None,
            data: None,
            owner: None,
        }
    }

    /// The same under a name, so that a table may have several.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same for these columns only.
    #[must_use]
    pub fn columns<T: Into<String>>(mut self, columns: impl IntoIterator<Item = T>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// The same for these operations only.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }

    /// The same, where an operation has this event type.
    #[must_use]
    pub fn event(mut self, operation: Operation, r#type: impl Into<String>) -> Self {
        self.types.insert(operation, r#type.into());
        self
    }

    /// The same for changes for which this is true, such as `new.total > 100`.
    #[must_use]
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        self.condition = Some(condition.into());
        self
    }

    /// The same about this, such as `'customer/' || coalesce(new.customer, old.customer)`.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The same with this data, such as `json_build_object('total', new.total)`.
    #[must_use]
    pub fn data(mut self, data: impl Into<String>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// The same for this owner, such as `coalesce(new.tenant, old.tenant)`.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }
}
