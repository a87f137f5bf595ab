//! Bounds of the measured figures. A bound is slightly above the value reached; lower it when the value falls. The goals are
//! in `docs/style.md`, section 7.

/// Bounds on the comments of one kind of file.
pub(crate) struct CommentBounds {
    /// Largest share of comments with a forbidden opening, in tenths of a percent.
    pub(crate) bad_openings_max: usize,
    /// Largest share of comments of three words or fewer, in tenths of a percent. `None`: not checked.
    pub(crate) short_max: Option<usize>,
}

/// Goal: at most 3 % and 6 %.
pub(crate) const DOC_COMMENTS: CommentBounds = CommentBounds { bad_openings_max: 3, short_max: Some(30) };
/// Goal: at most 3 %.
pub(crate) const INLINE_COMMENTS: CommentBounds = CommentBounds { bad_openings_max: 5, short_max: None };
/// Goal: at most 3 %. Buf asks for a comment on every element, so short ones are not bounded.
pub(crate) const PROTO_COMMENTS: CommentBounds = CommentBounds { bad_openings_max: 3, short_max: None };
/// Goal: at most 3 %.
pub(crate) const SETTING_COMMENTS: CommentBounds = CommentBounds { bad_openings_max: 10, short_max: None };

/// Bounds on one service.
pub(crate) struct ServiceBounds {
    pub(crate) service: &'static str,
    /// Public declarations per 1,000 code lines, struct fields included. Goal: at most 25.
    pub(crate) public_max: usize,
    /// References between modules that the module graph forbids. Goal: 0.
    pub(crate) forbidden_references_max: usize,
}

pub(crate) const SERVICES: [ServiceBounds; 6] = [
    ServiceBounds { service: "queue", public_max: 6, forbidden_references_max: 0 },
    ServiceBounds { service: "inventory", public_max: 4, forbidden_references_max: 0 },
    ServiceBounds { service: "claim", public_max: 3, forbidden_references_max: 0 },
    ServiceBounds { service: "payment", public_max: 3, forbidden_references_max: 0 },
    ServiceBounds { service: "ticketing", public_max: 7, forbidden_references_max: 0 },
    ServiceBounds { service: "notification", public_max: 3, forbidden_references_max: 0 },
];

/// Files of `app`, `domain`, `store` and `engine` that name `onsale_proto` or `prost`. Goal: 0.
pub(crate) const PROTOBUF_FILES_MAX: usize = 0;

/// Bounds on one walk of `docs/style.md`.
pub(crate) struct WalkBounds {
    /// Heading of the walk.
    pub(crate) name: &'static str,
    /// Only files below this directory are counted. Empty: all files.
    pub(crate) counted_below: &'static str,
    pub(crate) files_max: Option<usize>,
    pub(crate) returns_max: Option<usize>,
}

pub(crate) const WALKS: [WalkBounds; 3] = [
    WalkBounds { name: "JoinQueue", counted_below: "", files_max: Some(10), returns_max: Some(2) },
    WalkBounds {
        name: "CreateClaim",
        counted_below: "services/claim/src/",
        files_max: Some(14),
        returns_max: None,
    },
    WalkBounds { name: "order.completed", counted_below: "", files_max: None, returns_max: None },
];
