"""The claims of papers as checks on stored runs: kinds of claims, how a file states them, and their results."""

from orthobench.analysis.claims.checking import check_claims as check_claims
from orthobench.analysis.claims.checking import check_panels as check_panels
from orthobench.analysis.claims.checking import check_runs as check_runs
from orthobench.analysis.claims.checking import check_small as check_small
from orthobench.analysis.claims.checking import refuse_wrong_claims as refuse_wrong_claims
from orthobench.analysis.claims.claim_results import ClaimCounts as ClaimCounts
from orthobench.analysis.claims.claim_results import ClaimResult as ClaimResult
from orthobench.analysis.claims.claim_results import Lack as Lack
from orthobench.analysis.claims.claim_results import count_claims as count_claims
from orthobench.analysis.claims.reading import read_claims as read_claims
